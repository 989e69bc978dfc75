# SPDX-License-Identifier: Apache-2.0
"""A reading costs the controller the one question that was promised."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lab import SlurmLab
from slurmscope.cluster import licenses as scontrol_licenses
from slurmscope.cluster import limits as scontrol_limits
from slurmscope.cluster import reservations as scontrol_reservations
from slurmscope.cluster import shares as sshare
from tests.e2e.asking import ask, count_questions


@pytest.mark.parametrize(
    ("command", "arguments", "question"),
    [
        ("sshare", sshare.ARGUMENTS, "REQUEST_SHARE_INFO"),
        ("scontrol", scontrol_limits.ARGUMENTS, "REQUEST_ASSOC_MGR_INFO"),
        ("scontrol", scontrol_licenses.ARGUMENTS, "REQUEST_LICENSE_INFO"),
        ("scontrol", scontrol_reservations.ARGUMENTS, "REQUEST_RESERVATION_INFO"),
    ],
    ids=["shares", "limits", "licenses", "reservations"],
)
def test_a_reading_asks_one_question(
    clean_lab: SlurmLab, command: str, arguments: Sequence[str], question: str
) -> None:
    before = count_questions(clean_lab)
    ask(clean_lab, command, arguments)

    after = count_questions(clean_lab)

    # The counting itself is a question too.
    assert {question: 1, "REQUEST_STATS_INFO": 1} == after - before
