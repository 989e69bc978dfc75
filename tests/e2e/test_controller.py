# SPDX-License-Identifier: Apache-2.0
"""An outage of the controller shows as slurm_up 0, in time and not for ever."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab import SlurmLab
from slurmscope.cluster.controller import COLLECTOR, ControllerPing
from slurmscope.exporter.collector import NoOptions
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from tests.e2e.asking import samples_of


def serve(
    lab: SlurmLab, *, timeout: float = 30.0, slurm_conf: Path | None = None
) -> Mapping[str, Mapping[tuple[str, ...], object]]:
    """Read and collect as the exporter does."""
    environment = {"SLURM_CONF": str(slurm_conf)} if slurm_conf else lab.environment
    commands = SlurmCommands(SlurmSettings(bin_path=lab.bin_path, timeout=timeout), environment)
    return samples_of(COLLECTOR.collect(NoOptions(), controllers=ControllerPing(commands.run).read()))


def host(lab: SlurmLab) -> str:
    """Return the name of the controller's host as the configuration has it."""
    lines = lab.run("scontrol", "show", "config").splitlines()
    line = next(line for line in lines if line.startswith("SlurmctldHost[0]"))
    return line.partition("=")[2].partition("(")[0].strip()


def test_a_controller_that_answers_is_up(clean_lab: SlurmLab) -> None:
    assert {
        "slurm_up": {(): 1},
        "slurm_controller_up": {(host(clean_lab), "primary"): 1},
    } == serve(clean_lab)


def test_a_missing_backup_is_down_while_slurm_is_up(clean_lab: SlurmLab, tmp_path: Path) -> None:
    one = clean_lab.layout.slurm_conf.read_text()
    primary = next(line for line in one.splitlines() if line.startswith("SlurmctldHost="))
    # Nobody listens at this address of the loopback network.
    two = tmp_path / "slurm.conf"
    two.write_text(one.replace(primary, f"{primary}\nSlurmctldHost=second(127.0.0.9)"))

    assert {
        "slurm_up": {(): 1},
        "slurm_controller_up": {(host(clean_lab), "primary"): 1, ("second", "backup"): 0},
    } == serve(clean_lab, slurm_conf=two)


def test_a_dead_controller_is_down_until_it_is_back(clean_lab: SlurmLab) -> None:
    alive = serve(clean_lab)["slurm_controller_up"]
    clean_lab.kill_controller()
    dead = serve(clean_lab)
    clean_lab.start_controller()

    assert {"slurm_up": {(): 0}, "slurm_controller_up": dict.fromkeys(alive, 0)} == dead
    assert alive
    assert {(): 1} == serve(clean_lab)["slurm_up"]


def test_a_frozen_controller_is_down(clean_lab: SlurmLab) -> None:
    clean_lab.suspend_controller()
    try:
        frozen = serve(clean_lab, timeout=1.0)
    finally:
        clean_lab.resume_controller()

    assert {(): 0} == frozen["slurm_up"]
