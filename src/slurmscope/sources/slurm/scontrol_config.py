# SPDX-License-Identifier: Apache-2.0
"""Read the controller's configuration, as far as it changes what we may show."""

from __future__ import annotations

import re

from slurmscope.errors import MalformedAnswer
from slurmscope.model.controllers import ControllerConfig
from slurmscope.sources.slurm.commands import RunCommand

ARGUMENTS = ("show", "config")

_LINE = re.compile(r"(?P<key>[A-Za-z_]+) += (?P<value>.*)")


def read_config(run: RunCommand) -> ControllerConfig:
    """Read the configuration of the controller."""
    return parse_config(run("scontrol", ARGUMENTS))


def parse_config(answer: bytes) -> ControllerConfig:
    """Read the settings we care for; an answer without them is not a configuration."""
    values = {}
    for line in answer.decode("utf-8", "surrogateescape").splitlines():
        if match := _LINE.match(line):
            values[match["key"]] = match["value"].strip()
    if "PrivateData" not in values:
        raise MalformedAnswer("scontrol show config: the answer does not name PrivateData")
    private = values["PrivateData"].lower()
    return ControllerConfig(
        cluster_name=values.get("ClusterName", ""),
        slurm_version=values.get("SLURM_VERSION", ""),
        slurm_user=values.get("SlurmUser", "").partition("(")[0],
        private_data=frozenset() if private in ("", "none") else frozenset(private.split(",")),
    )
