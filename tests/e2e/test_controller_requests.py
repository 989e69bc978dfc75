# SPDX-License-Identifier: Apache-2.0
"""A collector costs the controller the requests of its readings, and no more."""

from __future__ import annotations

import pytest

from lab import SlurmLab
from tests.e2e.controller_requests import count_requests
from tests.e2e.scrape import scrape


@pytest.mark.parametrize(
    ("collector", "requests"),
    [
        ("shares", {"REQUEST_SHARE_INFO"}),
        ("limits", {"REQUEST_ASSOC_MGR_INFO"}),
        ("licenses", {"REQUEST_LICENSE_INFO"}),
        # The health of reserved nodes comes from sinfo.
        ("reservations", {"REQUEST_RESERVATION_INFO", "REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO"}),
    ],
)
def test_collector_sends_each_request_once(clean_lab: SlurmLab, collector: str, requests: set[str]) -> None:
    before = count_requests(clean_lab)
    scrape(clean_lab, collector)

    after = count_requests(clean_lab)

    assert dict.fromkeys([*requests, "REQUEST_STATS_INFO"], 1) == after - before
