# SPDX-License-Identifier: Apache-2.0
"""An outage of the controller shows as slurm_up 0, in time and not for ever."""

from __future__ import annotations

from pathlib import Path

from lab import SlurmLab
from tests.e2e.scrape import scrape


def host(lab: SlurmLab) -> str:
    """Return the name of the controller's host as the configuration has it."""
    lines = lab.run("scontrol", "show", "config").splitlines()
    line = next(line for line in lines if line.startswith("SlurmctldHost[0]"))
    return line.partition("=")[2].partition("(")[0].strip()


def test_a_controller_that_answers_is_up(clean_lab: SlurmLab) -> None:
    served = scrape(clean_lab, "controller")

    assert {(): 1} == served["slurm_up"]
    assert {(host(clean_lab), "primary"): 1} == served["slurm_controller_up"]


def test_a_missing_backup_is_down_while_slurm_is_up(clean_lab: SlurmLab, tmp_path: Path) -> None:
    one = clean_lab.layout.slurm_conf.read_text()
    primary = next(line for line in one.splitlines() if line.startswith("SlurmctldHost="))
    # Nobody listens at this address of the loopback network.
    two = tmp_path / "slurm.conf"
    two.write_text(one.replace(primary, f"{primary}\nSlurmctldHost=second(127.0.0.9)"))

    served = scrape(clean_lab, "controller", environment={"SLURM_CONF": str(two)})

    assert {(): 1} == served["slurm_up"]
    assert {(host(clean_lab), "primary"): 1, ("second", "backup"): 0} == served["slurm_controller_up"]


def test_a_dead_controller_is_down_until_it_is_back(clean_lab: SlurmLab) -> None:
    name = host(clean_lab)
    clean_lab.kill_controller()
    dead = scrape(clean_lab, "controller")
    clean_lab.start_controller()

    assert {(): 0} == dead["slurm_up"]
    assert {(name, "primary"): 0} == dead["slurm_controller_up"]
    assert {(): 1} == scrape(clean_lab, "controller")["slurm_up"]


def test_a_frozen_controller_is_down(clean_lab: SlurmLab) -> None:
    clean_lab.suspend_controller()
    try:
        frozen = scrape(clean_lab, "controller", flags=["--slurm.timeout=1s"])
    finally:
        clean_lab.resume_controller()

    assert {(): 0} == frozen["slurm_up"]
