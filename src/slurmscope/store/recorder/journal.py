# SPDX-License-Identifier: Apache-2.0
"""Write samples of one moment as one row, and fill memory from such rows again.

A row costs the same however many samples it holds, so the file takes them at the speed of a copy.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable

from slurmscope.store.recorder.heads import Head, Heads


def write_moment(connection: sqlite3.Connection, at_seconds: float, ids: array[int], values: array[float]) -> None:
    """Append the samples of one moment."""
    connection.execute(
        "INSERT INTO journal (at, series, numbers) VALUES (?, ?, ?)", (at_seconds, ids.tobytes(), values.tobytes())
    )


def write_heads(connection: sqlite3.Connection, heads: Iterable[Head]) -> None:
    """Write which series the numbers in the journal stand for."""
    rows = ((head.id, head.metric, head.job_id, json.dumps(dict(head.labels))) for head in heads)
    connection.executemany("INSERT INTO heads (id, metric, job_id, labels) VALUES (?, ?, ?, ?)", rows)


def clear_journal(connection: sqlite3.Connection, idle: Iterable[Head]) -> None:
    """Drop the journal, which is packed now, and series that are gone."""
    connection.execute("DELETE FROM journal")
    connection.executemany("DELETE FROM heads WHERE id = ?", ((head.id,) for head in idle))


def read_all_heads(connection: sqlite3.Connection) -> Heads:
    """Return all series with the samples that are not packed yet; a damaged row is a ValueError."""
    return _fill(connection, connection.execute("SELECT id, metric, job_id, labels FROM heads"))


def read_heads(connection: sqlite3.Connection, metric: str, job_ids: Iterable[int]) -> Heads:
    """Return the series of one metric and some jobs."""
    query = "SELECT id, metric, job_id, labels FROM heads WHERE metric = ? AND job_id = ?"
    return _fill(connection, (row for job_id in job_ids for row in connection.execute(query, (metric, job_id))))


def _fill(connection: sqlite3.Connection, rows: Iterable[tuple[int, str, int, str]]) -> Heads:
    heads = Heads()
    for number, metric, job_id, labels in rows:
        heads.add(Head(number, metric, job_id, json.loads(labels)))
    if len(heads):
        for at, series, numbers in connection.execute("SELECT at, series, numbers FROM journal ORDER BY id"):
            heads.feed(at, array("q", series), array("d", numbers))
    return heads
