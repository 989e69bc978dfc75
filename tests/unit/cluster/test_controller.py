# SPDX-License-Identifier: Apache-2.0
"""An outage of Slurm is a zero, never a gap."""

from __future__ import annotations

from slurmscope.cluster.controller import COLLECTOR
from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.family import Samples
from slurmscope.slurm.config import Controller, Controllers


def serve(controllers: Controllers) -> dict[str, Samples]:
    """Return all samples by the name of their metric."""
    return {family.metric.name: family.samples for family in COLLECTOR.collect(NoOptions(), controllers=controllers)}


def test_each_controller_and_all_together_are_served() -> None:
    primary = Controller(host="ctl1", role="primary", is_up=False)
    backup = Controller(host="ctl2", role="backup", is_up=True)

    served = serve(Controllers(controllers=(primary, backup)))

    assert {
        "slurm_up": {(): 1},
        "slurm_controller_up": {("ctl1", "primary"): 0, ("ctl2", "backup"): 1},
    } == served
    assert {metric.name for metric in COLLECTOR.metrics} == set(served)


def test_controllers_that_are_all_down_make_slurm_down() -> None:
    served = serve(Controllers(controllers=(Controller(host="ctl1", role="primary", is_up=False),)))

    assert {"slurm_up": {(): 0}, "slurm_controller_up": {("ctl1", "primary"): 0}} == served


def test_silence_makes_slurm_down() -> None:
    assert {"slurm_up": {(): 0}, "slurm_controller_up": {}} == serve(Controllers())
