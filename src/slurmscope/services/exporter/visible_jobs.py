# SPDX-License-Identifier: Apache-2.0
"""Make readings of jobs fail where PrivateData hides jobs from this user: pages would show an empty cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

from slurmscope.model.controllers import ControllerConfig
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.sources.slurm import scontrol_config

CONFIG_SECONDS = 2.0
"""How long a reading of jobs waits for PrivateData."""


def require_all_jobs(read: Callable[[], object], find_config: Callable[[], SharedReading]) -> Callable[[], object]:
    """Return a function that reads jobs, and raises CommandRefused if jobs of others are hidden."""

    def read_all() -> object:
        config = find_config()
        config.request()
        jobs = read()
        value = config.wait(time.monotonic() + CONFIG_SECONDS).value
        if isinstance(value, ControllerConfig):
            scontrol_config.require_all_jobs(value, scontrol_config.find_own_user())
        return jobs

    return read_all
