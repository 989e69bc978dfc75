# SPDX-License-Identifier: Apache-2.0
"""Pushed metrics are sent as they are on the page, and parsed again only when they change."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurmscope.exporter.reading import PushedPage, PushedText
from slurmscope.inbox.inbox import InboxPage
from slurmscope.inbox.pushed import OwnMetrics
from slurmscope.inbox.store import GroupStore, InboxSettings
from slurmscope.metrics.family import gauge
from slurmscope.metrics.parse import parse
from slurmscope.metrics.write import Format
from slurmscope.remote_write.encoding import Series
from slurmscope.remote_write.service import PushedSeries

OPEN_FILES = gauge("process_open_fds", "Open files.")


class Encoded:
    """Count how often series are encoded."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, name: str, labels: Mapping[str, str]) -> Series:
        """Return something readable."""
        self.count += 1
        return name.encode(), str(sorted(labels.items())).encode()


def page_of(text: str) -> PushedPage:
    return PushedPage(blocks=(zlib.compress(text.encode(), wbits=31),))


def test_series_of_the_inbox_are_sent_and_parsed_once_per_change(tmp_path: Path) -> None:
    own = OwnMetrics([OPEN_FILES], [OPEN_FILES])
    store = GroupStore(InboxSettings(enabled=True, directory=tmp_path), own, label_length_limit=100)
    encoded = Encoded()
    pushed = PushedSeries(InboxPage(store, own.shared).get, encoded)
    try:
        assert [] == pushed.samples()
        text = 'files{disk="a\\"b"} 3\n# TYPE process_open_fds gauge\nprocess_open_fds 7\n'
        store.push({"job": "backup"}, tuple(parse(text, Format.TEXT)), is_whole=True)
        found = dict(pushed.samples())
        count = encoded.count
        assert found == dict(pushed.samples())
        assert count == encoded.count
    finally:
        store.close()

    by_name = {name: (labels, value) for (name, labels), value in found.items()}
    assert (b"""[('disk', 'a"b'), ('instance', ''), ('job', 'backup')]""", 3.0) == by_name[b"files"]
    assert 7.0 == by_name[b"process_open_fds"][1]
    assert {b"files", b"process_open_fds", b"push_time_seconds", b"push_failure_time_seconds"} == by_name.keys()


def test_page_that_cannot_be_parsed_costs_pushed_series_only(caplog: pytest.LogCaptureFixture) -> None:
    pages = [page_of("a 1\n"), page_of("a{ 1\n"), PushedPage(beside={"b": PushedText(b"", b"b 2\n")})]
    pushed = PushedSeries(lambda: pages[0], Encoded())

    assert [1.0] == [value for _, value in pushed.samples()]
    del pages[0]
    with caplog.at_level(logging.ERROR):
        assert [] == pushed.samples()
    assert ["pushed metrics are not sent by remote write"] == [record.message for record in caplog.records]
    del pages[0]
    assert [2.0] == [value for _, value in pushed.samples()]
