# SPDX-License-Identifier: Apache-2.0
"""Collectors are enabled and disabled by flag, variable and file."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.cli.options import load_config
from slurmscope.cli.roles import all_collectors
from slurmscope.cluster.jobs import JobsOptions
from slurmscope.exporter.collector import Role
from slurmscope.exporter.exporter import enabled_collectors
from tests.fakes.command_line import run_here


def enabled(role: Role, **given: object) -> set[str]:
    return {each.collector.name for each in enabled_collectors(all_collectors(role), load_config(role.value, given))}


@pytest.mark.parametrize("role", Role)
def test_default_collectors_are_enabled(role: Role) -> None:
    assert {collector.name for collector in all_collectors(role) if collector.is_default} == enabled(role)


@pytest.mark.parametrize(("role", "name"), [(Role.CLUSTER, "jobs"), (Role.CLUSTER, "job_info"), (Role.NODE, "gpus")])
def test_disabled_defaults_leave_only_what_is_enabled_explicitly(role: Role, name: str) -> None:
    assert set() == enabled(role, collector_disable_defaults=True)
    assert {name} == enabled(role, collector_disable_defaults=True, **{f"collector_{name}": True})


@pytest.mark.parametrize("role", Role)
def test_defaults_are_disabled_by_variable_and_file(
    role: Role, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "slurmscope.toml"
    file.write_text("[collector]\ndisable-defaults = true\n")
    name = all_collectors(role)[0].name

    assert set() == enabled(role, config_file=file)
    file.write_text(f"[collector]\ndisable-defaults = true\n{name}.enabled = true\n")
    assert {name} == enabled(role, config_file=file)

    monkeypatch.setenv("SLURMSCOPE_COLLECTOR_DISABLE_DEFAULTS", "true")
    assert set() == enabled(role)
    assert enabled(role, collector_disable_defaults=False)


def test_collector_disabled_by_the_defaults_is_shown_as_such() -> None:
    shown = run_here("config", "show", "cluster", "--collector.disable-defaults", "--collector.nodes").stdout

    assert "collector.disable-defaults = true  # flag" in shown
    assert "collector.nodes.enabled = true  # flag" in shown
    assert "collector.jobs.enabled = false  # collector.disable-defaults" in shown


def test_exporter_serves_only_the_enabled_collector(tmp_path: Path) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\n")
    squeue.chmod(0o755)

    page = run_here(
        "cluster", "--once", "--collector.disable-defaults", "--collector.jobs", "--slurm.bin-path", str(tmp_path)
    ).stdout

    assert [("jobs", 1.0)] == [
        (line.split('"')[1], float(line.split()[-1]))
        for line in page.splitlines()
        if line.startswith("slurmscope_collector_success{")
    ]


def test_empty_partitions_of_ncpus_mean_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "slurmscope.toml"
    file.write_text("collector.jobs.ncpus-partitions = []\n")

    assert ("gpus",) == load_config("cluster", {}).of(JobsOptions).ncpus_partitions
    assert () == load_config("cluster", {"collector_jobs_ncpus_partitions": ("",)}).of(JobsOptions).ncpus_partitions
    assert () == load_config("cluster", {"config_file": file}).of(JobsOptions).ncpus_partitions
    monkeypatch.setenv("SLURMSCOPE_COLLECTOR_JOBS_NCPUS_PARTITIONS", "")
    assert () == load_config("cluster", {}).of(JobsOptions).ncpus_partitions
