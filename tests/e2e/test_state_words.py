# SPDX-License-Identifier: Apache-2.0
"""Our words for states are those of Slurm's own library, for every base state with any two flags."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import LabUnavailable
from slurmscope.slurm.states import job_state, node_state_text

# Numbers of bits and states as in slurm.h.
NODE_BASES = ("unknown", "down", "idle", "allocated", "error", "mixed", "future")
NODE_FLAGS = {
    "reserved": 5, "cloud": 7, "resume": 8, "drain": 9, "completing": 10, "not_responding": 11, "powered_down": 12,
    "fail": 13, "powering_up": 14, "maintenance": 15, "reboot_requested": 16, "powering_down": 18,
    "dynamic_future": 19, "reboot_issued": 20, "planned": 21, "invalid_reg": 22, "power_down": 23, "power_up": 24,
    "dynamic_norm": 26,
}  # fmt: skip
JOB_BASES = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
JOB_FLAGS = {
    "LAUNCH_FAILED": 8, "REQUEUED": 10, "REQUEUE_HOLD": 11, "SPECIAL_EXIT": 12, "RESIZING": 13, "CONFIGURING": 14,
    "COMPLETING": 15, "STOPPED": 16, "RECONFIG_FAIL": 17, "POWER_UP_NODE": 18, "REVOKED": 19, "REQUEUE_FED": 20,
    "RESV_DEL_HOLD": 21, "SIGNALING": 22, "STAGE_OUT": 23,
}  # fmt: skip

Word = Callable[[int], str]


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    """Load the library of the commands that are installed here."""
    found = sorted(Path("/usr/lib").glob("*/slurm-wlm/libslurmfull.so"))
    if not found:
        raise LabUnavailable("Slurm's library is missing: apt-get install --no-install-recommends slurm-client")
    return ctypes.CDLL(str(found[0]))


def words_of(library: ctypes.CDLL, name: str) -> Word:
    function = library[name]
    function.argtypes, function.restype = [ctypes.c_uint32], ctypes.c_char_p

    def word(state: int) -> str:
        told = function(state)
        assert isinstance(told, bytes)
        return told.decode()

    return word


def sets_of(flags: dict[str, int]) -> Iterator[tuple[str, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(flags, count) for count in range(3))


def test_nodes_have_the_words_of_the_library(library: ctypes.CDLL) -> None:
    word = words_of(library, "slurm_node_state_string")
    differing = {
        (base, flags)
        for base in NODE_BASES
        for flags in sets_of(NODE_FLAGS)
        if word(NODE_BASES.index(base) | sum(1 << NODE_FLAGS[flag] for flag in flags)).lower()
        != node_state_text(base, frozenset(flags))
    }

    # Slurm has changed these since 22.05: a mixed node that fails, and an unknown one that is called by its flag.
    renamed = {("unknown", ("dynamic_future",)), ("unknown", ("dynamic_norm",))}
    changed = {found for found in differing if found in renamed or (found[0] == "mixed" and "fail" in found[1])}
    assert set() == differing - changed


def test_jobs_have_the_words_of_the_library(library: ctypes.CDLL) -> None:
    word = words_of(library, "slurm_job_state_string")
    for base, flags in itertools.product(JOB_BASES, sets_of(JOB_FLAGS)):
        state = JOB_BASES.index(base) | sum(1 << JOB_FLAGS[flag] for flag in flags)
        assert word(state) == job_state([base, *flags])
