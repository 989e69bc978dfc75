# SPDX-License-Identifier: Apache-2.0
"""Options of a submit line are read up to the script; what comes after belongs to that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.rule import submit_options


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {}),
        ("sbatch", {}),
        ("sbatch job.sh", {}),
        ("sbatch -n16 -c 4 job.sh", {"ntasks": "16", "cpus-per-task": "4"}),
        ("sbatch --ntasks=16 --cpus-per-task 4 job.sh", {"ntasks": "16", "cpus-per-task": "4"}),
        ("sbatch --mem 8G job.sh --mem=4G -n 3", {"mem": "8G"}),
        ("sbatch --exclusive job.sh -c 4", {"exclusive": ""}),
        ("sbatch -H -n 2 job.sh", {"H": "", "ntasks": "2"}),
        ("sbatch --mem-per-cpu=2G --wrap=python x.py -n 5", {"mem-per-cpu": "2G", "wrap": "python"}),
        ("sbatch --mem= job.sh", {"mem": ""}),
        ("sbatch -n", {"ntasks": ""}),
        ("sbatch - -n 2", {}),
    ],
)
def test_options_before_the_script_are_read(line: str, expected: dict[str, str]) -> None:
    assert expected == submit_options(line)


@given(st.text(alphabet=st.sampled_from("-=nc 4xé\t\x00")) | st.text())
def test_any_line_is_read(line: str) -> None:
    assert all(value == "" or value in line for value in submit_options(line).values())
