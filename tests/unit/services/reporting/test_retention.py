# SPDX-License-Identifier: Apache-2.0
"""What is kept for ever stays, and a slip of the pen does not empty the archive."""

from __future__ import annotations

import pytest

from slurmscope.services.reporting.retention import Retention, RetentionTask, parse_keep_seconds
from slurmscope.services.runtime.clock import Clock

DAY = 86400


@pytest.mark.parametrize(("given", "expected"), [("0", 0.0), (0, 0.0), ("7d", 604800.0), ("365d", 31536000.0)])
def test_time_to_keep_is_read(given: object, expected: float) -> None:
    assert expected == parse_keep_seconds(given)


@pytest.mark.parametrize("given", ["365", 365, "6d", "1s"])
def test_time_without_its_unit_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r"is less than the minimum of 7d; 0 keeps data forever"):
        parse_keep_seconds(given)


def test_what_is_kept_for_ever_is_not_deleted() -> None:
    asked: list[int] = []

    def forget(before_seconds: int) -> int:
        asked.append(before_seconds)
        return 0

    chores = [RetentionTask(name=f"{days}", delete=forget, keep_seconds=days * DAY) for days in (0, 400)]
    now = 1000 * DAY + 5000.0

    Retention(chores, Clock(wall=lambda: now, monotonic=lambda: now)).work()

    assert [600 * DAY] == asked
