# SPDX-License-Identifier: Apache-2.0
"""States told bit by bit become the words of squeue and sinfo.

The expected words were printed by ``slurm_job_state_string`` and ``slurm_node_state_string`` of libslurmfull 26.05.5.
"""

from __future__ import annotations

import pytest

from slurmscope.slurm.states import job_state, node_state_text


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ("RUNNING", "RUNNING"),
        ("COMPLETING", "COMPLETING"),
        (["PENDING"], "PENDING"),
        (["COMPLETED", "COMPLETING"], "COMPLETING"),
        (["RUNNING", "CONFIGURING", "POWER_UP_NODE"], "CONFIGURING"),
        (["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"], "REQUEUE_HOLD"),
        (["PENDING", "REQUEUED", "EXPEDITING"], "EXPEDITING"),
        (["RUNNING", "STAGE_OUT", "RESIZING"], "STAGE_OUT"),
        (["SUSPENDED", "STOPPED"], "STOPPED"),
        (["CANCELLED", "REVOKED"], "REVOKED"),
        (["PENDING", "RESV_DEL_HOLD"], "RESV_DEL_HOLD"),
        (["FAILED", "LAUNCH_FAILED"], "FAILED"),
        (["POWER_UP_NODE", "RUNNING"], "RUNNING"),
        ([], ""),
        (None, ""),
    ],
)
def test_job_state_is_the_word_of_squeue(told: str | list[str] | None, word: str) -> None:
    assert word == job_state(told)


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("idle", "idle"),
        ("idle+drain", "drained"),
        ("mixed+drain", "draining"),
        ("allocated+drain+not_responding", "draining*"),
        ("idle+drain+completing", "draining"),
        ("idle+cloud+powered_down", "idle~"),
        ("idle+cloud+powering_up+not_responding", "idle#"),
        ("idle+powering_down", "idle%"),
        ("idle+power_down", "idle!"),
        ("idle+reserved", "reserved"),
        ("idle+reserved+planned", "reserved"),
        ("idle+blocked+planned", "blocked"),
        ("idle+planned", "planned"),
        ("idle+planned+not_responding", "idle*"),
        ("idle+maintenance+reserved", "maint"),
        ("idle+maintenance+not_responding", "maint*"),
        ("down+maintenance", "down$"),
        ("allocated+maintenance", "allocated$"),
        ("idle+maintenance+drain", "drained$"),
        ("idle+reboot_issued+not_responding", "reboot^"),
        ("idle+reboot_requested", "reboot"),
        ("down+reboot_requested+not_responding", "reboot*"),
        ("mixed+reboot_requested", "mixed@"),
        ("allocated+completing", "allocated+"),
        ("idle+completing", "completing"),
        ("mixed+completing+not_responding", "completing*"),
        ("down+completing", "down"),
        ("mixed+planned", "mixed-"),
        ("allocated+fail", "failing"),
        ("mixed+fail", "failing"),
        ("idle+fail+not_responding", "fail*"),
        ("down+not_responding", "down*"),
        ("unknown+drain+invalid_reg", "inval"),
        ("future", "future"),
        ("unknown", "unknown"),
        ("unknown+not_responding", "unknown*"),
        ("unknown+resume", "resume"),
        ("unknown+cloud", "cloud"),
        ("unknown+cloud+not_responding", "unknown*"),
        ("error", "?"),
    ],
)
def test_node_state_is_the_word_of_sinfo(state: str, word: str) -> None:
    base, *flags = state.split("+")

    assert word == node_state_text(base, frozenset(flags))


def test_the_flag_of_older_releases_is_still_known() -> None:
    # Slurm 22.05 prints it; later ones have no such flag.
    assert "perfctrs" == node_state_text("idle", frozenset({"perfctrs"}))
