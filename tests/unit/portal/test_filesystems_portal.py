# SPDX-License-Identifier: Apache-2.0
"""Pages get the last known lists of those who use a file system most."""

from __future__ import annotations

from slurmscope.core.errors import ServerError
from slurmscope.exporter.reading import SharedReading
from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClient, TopClients
from slurmscope.portal.filesystems import find_top_clients

TOP = TopClients((TopClient("work", Period.NOW, ClientKind.USER, Quantity.READ, "ada", "ada", "", 1.0),))


def test_without_prometheus_nothing_is_known() -> None:
    assert find_top_clients(None) is None


def test_first_page_waits_and_later_ones_have_the_last_answer() -> None:
    answers: list[TopClients] = [TOP]

    def read() -> TopClients:
        if not answers:
            raise ServerError("down")
        return answers.pop()

    reading = SharedReading("filesystems", read, interval_seconds=0.0)

    assert TOP == find_top_clients(reading)
    reading.wait(float("inf"))
    find_top_clients(reading)
    reading.wait(float("inf"))
    assert TOP._replace(problems=("down",)) == find_top_clients(reading)


def test_failure_before_the_first_answer_is_shown() -> None:
    def read() -> TopClients:
        raise ServerError("down")

    assert TopClients((), ("down",)) == find_top_clients(SharedReading("filesystems", read, interval_seconds=9.0))
