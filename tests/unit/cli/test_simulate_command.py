# SPDX-License-Identifier: Apache-2.0
"""``slurmscope simulate`` names its cluster, in Slurm's commands as well."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurmscope.cli.demo_command import make_simulate_command

SMALL = ("--jobs", "3", "--nodes", "2")


def test_cluster_has_the_given_name(tmp_path: Path) -> None:
    result = CliRunner().invoke(make_simulate_command(), ["--output", str(tmp_path), "--cluster", "Second", *SMALL])
    assert 0 == result.exit_code, result.output
    answer = subprocess.run([tmp_path / "scontrol", "show", "config"], capture_output=True, text=True, check=True)
    assert "ClusterName             = second\n" in answer.stdout


@pytest.mark.parametrize("name", ["a b", "", "x;y"])
def test_odd_name_is_refused(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(make_simulate_command(), ["--output", str(tmp_path / "bin"), "--cluster", name, *SMALL])
    assert 2 == result.exit_code
    assert not (tmp_path / "bin").exists()
