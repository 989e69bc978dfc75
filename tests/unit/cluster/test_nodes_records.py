# SPDX-License-Identifier: Apache-2.0
"""A node can take work exactly when Slurm would give it some."""

from __future__ import annotations

import pytest

from slurmscope.cluster.sinfo import BASE_STATES, FLAGS, can_run_jobs


@pytest.mark.parametrize(
    "state",
    [
        "idle",
        "mixed",
        "allocated",
        "mixed planned",
        "idle reserved",
        "mixed completing",
        "mixed reboot_requested",
        "idle cloud powered_down",
        "mixed cloud powering_up not_responding",
        "idle dynamic_norm",
        "idle a_flag_of_next_year",
    ],
)
def test_node_can_run_jobs(state: str) -> None:
    base_state, *flags = state.split()

    assert can_run_jobs(base_state, frozenset(flags))


@pytest.mark.parametrize(
    "state",
    [
        "down",
        "error",
        "future",
        "unknown",
        "idle drain",
        "allocated drain",
        "mixed fail",
        "idle not_responding",
        "idle maintenance",
        "idle blocked",
        "idle external",
        "idle invalid_reg",
        "idle cloud power_down",
        "idle cloud powering_down",
        "allocated reboot_issued",
        "idle drain powered_down",
        "down powering_up not_responding",
    ],
)
def test_node_cannot_take_work(state: str) -> None:
    base_state, *flags = state.split()

    assert not can_run_jobs(base_state, frozenset(flags))


def test_every_known_word_is_a_plain_lower_case_word() -> None:
    assert all(word == word.lower() and word.replace("_", "").isalpha() for word in (*BASE_STATES, *FLAGS))
