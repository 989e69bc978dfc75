# SPDX-License-Identifier: Apache-2.0
"""Check how numbers are written, against what squeue and sinfo 22.05.8 printed on a real controller."""

from __future__ import annotations

import hostlist
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.units import MIB
from slurmscope.simulator.cluster.texts import duration_text, hosts_text, index_text, memory_text


# Left: what sbatch was given with --mem. Right: what squeue -O MinMemory and tres-alloc printed for it.
@pytest.mark.parametrize(
    ("mebibytes", "printed"),
    [
        (1, "1M"),
        (1023, "1023M"),
        (1500, "1500M"),
        (10_496, "10496M"),
        (2048, "2G"),
        (300_000, "300000M"),
        (1_048_576, "1T"),
        (1_572_864, "1.50T"),
        (3 * 716_800, "2100G"),
        (4 * 524_288, "2T"),
    ],
)
def test_memory_is_written_as_squeue_writes_it(mebibytes: int, printed: str) -> None:
    assert printed == memory_text(mebibytes * MIB)


# Printed by squeue -O TimeUsed and TimeLimit; hours and more follow the manual page.
@pytest.mark.parametrize(
    ("seconds", "printed"),
    [
        (0, "0:00"),
        (18, "0:18"),
        (150, "2:30"),
        (1800, "30:00"),
        (3723, "1:02:03"),
        (93_780, "1-02:03:00"),
        (-5, "0:00"),
    ],
)
def test_durations_are_written_as_squeue_writes_them(seconds: int, printed: str) -> None:
    assert printed == duration_text(seconds)


# Left: the tasks of --array. Right: what squeue -O ArrayTaskID printed with SLURM_BITSTR_LEN=0.
@pytest.mark.parametrize(
    ("tasks", "printed"),
    [
        ((5,), "5"),
        ((1, 2), "1-2"),
        ((1, 3), "1,3"),
        ((1, 2, 3, 5, 6), "1-3,5-6"),
        ((1, 3, 5, 7, 8), "1,3,5,7-8"),
        ((0, 3, 6, 9, 12), "0,3,6,9,12"),
        ((0, 3, 6, 9, 12, 15), "0-15:3"),
        (tuple(range(0, 1000, 2)), "0-998:2"),
        (tuple(range(1, 1001)), "1-1000"),
    ],
)
def test_array_indexes_are_written_as_squeue_writes_them(tasks: tuple[int, ...], printed: str) -> None:
    assert printed == index_text(tasks)


# Printed by sinfo -o %N.
@pytest.mark.parametrize(
    ("names", "printed"),
    [
        (["n1"], "n1"),
        (["n1", "n2"], "n[1-2]"),
        (["c01", "c02", "c03", "c05", "c06", "g1", "g2", "n1", "n2"], "c[01-03,05-06],g[1-2],n[1-2]"),
        (["login"], "login"),
    ],
)
def test_host_lists_are_written_as_sinfo_writes_them(names: list[str], printed: str) -> None:
    assert printed == hosts_text(names)


@given(st.lists(st.builds("{}{:03}".format, st.sampled_from(["n", "gpu-", "rack1-"]), st.integers(0, 999)), min_size=1))
def test_host_lists_can_be_read_back(names: list[str]) -> None:
    assert set(names) == set(hostlist.expand_hostlist(hosts_text(names)))
