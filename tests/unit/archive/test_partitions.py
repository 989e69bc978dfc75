# SPDX-License-Identifier: Apache-2.0
"""A partition is dropped in a transaction of its own; what servers make of it is tested with servers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Table

from slurmscope.archive import partitions
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.reports.sources import open_archive
from tests.fakes.reports import make_report


def test_each_week_is_dropped_in_a_transaction_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weeks = {1: "w1", 2: "w2", 3: "w3", 2**20: "w1048576"}
    drops: list[tuple[str, Any]] = []

    def drop(connection: Connection, table: Table, name: str) -> None:
        drops.append((f"{table.name} {name}", connection.get_transaction()))
        del weeks[int(name.removeprefix("w"))]

    monkeypatch.setattr(partitions, "read_weeks", lambda *_: weeks)
    monkeypatch.setattr(partitions, "_drop", drop)
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=60.0))) as archive:
        archive.save([make_report()])
        archive.delete_curves(4 * partitions.WEEK_SECONDS)

    assert [f"slurmscope_curves w{week}" for week in (1, 2, 3)] == [name for name, _ in drops]
    # Kept in the list, so that none of them is another one at the same address.
    assert 3 == len({id(transaction) for _, transaction in drops})
    assert {2**20: "w1048576"} == weeks
