# SPDX-License-Identifier: Apache-2.0
"""A remote write endpoint that would refuse samples is found by the doctor, without sending any."""

from __future__ import annotations

import pytest

from slurmscope.core.check import Check
from slurmscope.remote_write.feature import RemoteWriteSettings, check_remote_write, parse_write_url
from tests.fakes.remote_write import FakeReceiver


def check(url: str) -> Check:
    (found,) = check_remote_write(RemoteWriteSettings(url=parse_write_url(url)))
    return found


def test_endpoint_that_accepts_requests_gets_no_sample() -> None:
    with FakeReceiver().serving() as receiver:
        found = check(receiver.url)

    assert found.is_good, found.message
    assert (1, []) == (len(receiver.requests), receiver.samples)


@pytest.mark.parametrize("status", [400, 401, 404, 503])
def test_endpoint_that_refuses_is_reported_with_its_answer(status: int) -> None:
    with FakeReceiver(answers=[(status, b"not for you", "")]).serving() as receiver:
        found = check(receiver.url)

    assert not found.is_good
    assert f"answered {status}: not for you" in found.message
    assert "remote-write-receiver" in found.advice


def test_endpoint_that_is_unreachable_is_reported() -> None:
    found = check("http://127.0.0.1:9/api/v1/write")

    assert (False, True) == (found.is_good, "is unreachable" in found.message)


def test_nothing_is_checked_without_remote_write() -> None:
    assert [] == list(check_remote_write(RemoteWriteSettings()))
