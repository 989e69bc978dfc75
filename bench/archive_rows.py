# SPDX-License-Identifier: Apache-2.0
"""Fill an archive with made-up jobs of a year, in any database.

Up to a million jobs are made here and written straight into the tables; further ones are copies of these with other
users, made by the database itself, which also adds everything up.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    case,
    cast,
    func,
    insert,
    literal,
    select,
    text,
)

from slurmscope.archive.daily_sums import (
    ADVICE_SUMS,
    BLOCK,
    DAILY,
    DAY,
    DIMENSIONS,
    NAMES,
    NO_RULE,
    RULE,
    SUMS,
    TOTALS,
    change_waits,
    loss_columns,
)
from slurmscope.archive.job_columns import EDGE_SECONDS
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.tables import FINDINGS, JOB_NODES, JOBS
from slurmscope.reports.sources import open_archive

YEAR_SECONDS = 365 * 86_400
END = 1_790_000_000
BLOCK_ROWS = 20_000
PATIENCE_SECONDS = 3600.0
MADE_HERE = 1_000_000

USERS = [f"user{number}" for number in range(500)]
ACCOUNTS = [f"account{number}" for number in range(60)]
PARTITIONS = ["batch", "long", "gpu", "debug"]
STATES = ["COMPLETED"] * 85 + ["FAILED"] * 8 + ["TIMEOUT"] * 4 + ["CANCELLED"] * 2 + ["OUT_OF_MEMORY"]
RULES = ["cpu_idle", "memory_over_requested", "time_over_requested", "gpu_idle", "too_short"]
OWN_NAMES = 0.1
CLUSTERS = ["lab"] * 49 + ["small"]

_COPIED_PEOPLE = Table(
    "bench_people",
    MetaData(),
    Column("old", String(128), primary_key=True),
    Column("copy", Integer, primary_key=True, autoincrement=False),
    Column("user", String(128), nullable=False),
    Column("account", String(128), nullable=False),
)


def fill(archive: SqlArchive, jobs: int) -> None:
    """Write the rows first and the indexes afterwards, which is several times faster."""
    began = time.perf_counter()
    patient = open_archive(replace(archive.database.settings, timeout=PATIENCE_SECONDS))
    try:
        _fill(patient, jobs)
        _refresh_statistics(patient)
    finally:
        patient.close()
    print(f"archive of {jobs} jobs in {archive.database.dialect}: made in {time.perf_counter() - began:.0f} s")


def _fill(archive: SqlArchive, jobs: int) -> None:
    made = min(jobs, MADE_HERE)
    indexes = [index for table in (JOBS, FINDINGS, JOB_NODES, DAILY, TOTALS) for index in table.indexes]
    with archive.database.writing() as connection:
        _hurry(connection)
        for index in indexes:
            index.drop(connection)
        _write_rows(connection, made, jobs)
        for copy in range(1, jobs // made):
            _copy(connection, copy, copy * made, made)
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT setval('slurmscope_jobs_run_id_seq', {jobs})"))
        _sum_up(connection)
        _fill_advice(connection)
        for index in sorted(indexes, key=_index_name):
            index.create(connection)


def _index_name(index: Index) -> str:
    return str(index.name)


def _hurry(connection: Connection) -> None:
    """Let the database use memory, and take its time."""
    statements = {
        "sqlite": ("PRAGMA cache_size=-300000",),
        "postgresql": ("SET maintenance_work_mem = '512MB'", "SET work_mem = '256MB'", "SET statement_timeout = 0"),
        "mariadb": ("SET SESSION max_statement_time = 0",),
    }
    for statement in statements[connection.dialect.name]:
        connection.execute(text(statement))


def _refresh_statistics(archive: SqlArchive) -> None:
    if archive.database.dialect == "postgresql":
        # As autovacuum does when rows are added little by little.
        with archive.database._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("SET statement_timeout = 0"))
            connection.execute(text("VACUUM ANALYZE"))
    archive.database.refresh_statistics()


def _write_rows(connection: Connection, made: int, jobs: int) -> None:
    rows = _rows(random.Random(1), made)
    while block := list(islice(rows, BLOCK_ROWS)):
        insert_rows(connection, JOBS, block)
        insert_rows(connection, FINDINGS, [found for row in block for found in _findings(row)])
        insert_rows(connection, JOB_NODES, [_nodes(row) for row in block])
        for _ in range(jobs // made):
            change_waits(connection, (), block)


def insert_rows(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Write rows with all columns of a table by the quickest way that a database has."""
    if not rows:
        return
    names = [column.name for column in table.c]
    pick = itemgetter(*names)
    quote = connection.dialect.identifier_preparer.quote
    columns = ", ".join(quote(name) for name in names)
    if connection.dialect.name == "postgresql":
        cursor: Any = connection.connection.cursor()
        with cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(pick(row))
        return
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    marks = ", ".join([mark] * len(names))
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", [pick(row) for row in rows])


def _copy(connection: Connection, copy: int, shift: int, made: int) -> None:
    """Add the jobs that were made once more, with other numbers and users."""
    _COPIED_PEOPLE.create(connection, checkfirst=True)
    shifted = [(number, (number + 7 * copy) % len(USERS)) for number in range(len(USERS))]
    people = [
        {"old": USERS[old], "copy": copy, "user": USERS[new], "account": ACCOUNTS[new % len(ACCOUNTS)]}
        for old, new in shifted
    ]
    connection.execute(insert(_COPIED_PEOPLE), people)
    for table in (JOBS, FINDINGS, JOB_NODES):
        person = _COPIED_PEOPLE
        changed = {
            "run_id": table.c.run_id + shift,
            "job_id": table.c.job_id + shift,
            "shown_id": cast(table.c.job_id + shift, String(20)),
            "user": person.c.user,
            "account": person.c.account,
        }
        columns = [changed.get(column.name, column) for column in table.c]
        source = table.join(person, (person.c.old == table.c.user) & (person.c.copy == copy))
        statement = select(*columns).select_from(source).where(table.c.run_id <= made)
        connection.execute(insert(table).from_select([column.name for column in table.c], statement))


def _fill_advice(connection: Connection) -> None:
    """Add outcomes of advice for every user, month and rule."""
    last, names = 12 * 2026 + 8, [column.name for column in ADVICE_SUMS.c]
    numbers = (20, 8, 12, 9, 1, 8, 3_600_000, 0, 7_200_000)
    rows = [
        dict(zip(names, (month, rule, user, ACCOUNTS[number % len(ACCOUNTS)], "lab", *numbers), strict=True))
        for month in range(last - 11, last + 1)
        for rule in RULES
        for number, user in enumerate(USERS)
    ]
    insert_rows(connection, ADVICE_SUMS, rows)


def _sum_up(connection: Connection) -> None:
    """Add up by SQL what saved reports are counted into."""
    names = [column.name for column in DAILY.c]
    for rule in (False, True):
        connection.execute(insert(DAILY).from_select(names, _sums_of_jobs(by_rule=rule)))
    keys = (DAILY.c.cluster, DAILY.c.user, DAILY.c.account, DAILY.c.partition, DAILY.c.state)
    block = DAILY.c.day - DAILY.c.day % BLOCK
    sums = (func.sum(DAILY.c[name]) for name in SUMS)
    statement = select(DAILY.c.rule, literal(BLOCK), block, *keys, *sums).where(DAILY.c.span == DAY)
    connection.execute(insert(DAILY).from_select(names, statement.group_by(DAILY.c.rule, block, *keys)))
    for dimension in (RULE, *DIMENSIONS):
        connection.execute(insert(TOTALS).from_select([column.name for column in TOTALS.c], _totals_by(dimension)))
    named = select(JOBS.c.name, func.count()).group_by(JOBS.c.name)
    connection.execute(insert(NAMES).from_select(["name", "jobs"], named))


def _totals_by(dimension: str) -> Select[Any]:
    kept = tuple(DAILY.c[name] for name in SUMS)
    sums = (func.sum(amount) for amount in (*kept, *loss_columns(DAILY.c.state, kept)))
    keys = (DAILY.c.span, DAILY.c.day, DAILY.c.cluster, DAILY.c[dimension])
    is_of_rule = DAILY.c.rule != NO_RULE if dimension == RULE else DAILY.c.rule == NO_RULE
    return select(literal(dimension), *keys, *sums).where(is_of_rule).group_by(*keys)


def _sums_of_jobs(*, by_rule: bool) -> Select[Any]:
    keys = (JOBS.c.cluster, JOBS.c.user, JOBS.c.account, JOBS.c.partition, JOBS.c.state)
    rule = FINDINGS.c.rule if by_rule else literal(NO_RULE)
    source = JOBS.join(FINDINGS, FINDINGS.c.run_id == JOBS.c.run_id) if by_rule else JOBS
    day = JOBS.c.submit_seconds // 86_400
    core_milliseconds = func.sum(JOBS.c.core_seconds) * 1000
    known = {
        "jobs": func.count(),
        "core_milliseconds": core_milliseconds,
        "measured_core_milliseconds": core_milliseconds,
        "used_core_milliseconds": func.sum(JOBS.c.used_core_seconds) * 1000,
        "jobs_with_findings": func.sum(case((JOBS.c.worst.is_(None), 0), else_=1)),
    }
    sums = (_whole(known.get(name, 0)) for name in SUMS)
    grouped = (rule, day, *keys) if by_rule else (day, *keys)
    return select(rule, literal(DAY), day, *keys, *sums).select_from(source).group_by(*grouped)


def _whole(amount: Any) -> Any:
    return literal(amount) if isinstance(amount, int) else func.round(amount)


def _rows(dice: random.Random, count: int) -> Iterator[dict[str, Any]]:
    for number in range(1, count + 1):
        user = min(dice.randrange(500), dice.randrange(500))
        cpus, run_seconds = dice.choice((1, 4, 16, 64)), float(dice.randrange(1, 90_000))
        used_seconds = round(cpus * run_seconds * dice.random(), 3)
        rules = dice.sample(RULES, dice.choice((0, 0, 1, 1, 2)))
        submit_seconds = END - YEAR_SECONDS + number * YEAR_SECONDS // count
        yield {
            "run_id": number, "cluster": CLUSTERS[number % len(CLUSTERS)], "job_id": number,
            "submit_seconds": submit_seconds,
            "shown_id": str(number), "array_job_id": None, "name": _name(dice, number),
            "user": USERS[user], "account": ACCOUNTS[user % len(ACCOUNTS)], "partition": dice.choice(PARTITIONS),
            "state": dice.choice(STATES), "start_seconds": submit_seconds + 60,
            "end_seconds": submit_seconds + 60 + int(run_seconds), "is_unfinished": False, "run_seconds": run_seconds,
            "nodes": 1, "cpus": cpus, "gpus": 0, "memory_bytes": 8e9, "cpu_ratio": used_seconds / (cpus * run_seconds),
            "memory_ratio": 0.5, "gpu_ratio": None, "time_ratio": 0.5, "core_seconds": cpus * run_seconds,
            "used_core_seconds": used_seconds, "wasted_core_seconds": cpus * run_seconds - used_seconds,
            "gpu_seconds": 0.0, "used_gpu_seconds": None, "wasted_gpu_seconds": None,
            "worst": dice.choice(("critical", "warning", "info")) if rules else None, "rules": ",".join(rules),
            "eligible_seconds": submit_seconds, "wait_seconds": float(dice.randrange(1, 100_000)),
            "time_limit_seconds": dice.choice((3600, 14_400, 86_400, 259_200)), "exit_code": 0, "exit_signal": 0,
            "derived_exit_code": 0, "derived_exit_signal": 0, "het_job_id": None, "het_offset": None, "tasks": 1,
            "blocked_core_seconds": None, "spark": "012345678987654321012345", "least_gpu_ratio": None,
            "energy_joules": None, "carbon_grams": None, "energy_cost": None, **dict.fromkeys(EDGE_SECONDS),
        }  # fmt: skip


def _name(dice: random.Random, number: int) -> str:
    """Return a name that a thousandth of the jobs have, or in one of ten jobs a name of its own."""
    return f"run_{number:07}" if dice.random() < OWN_NAMES else f"job{dice.randrange(1000)}"


def _findings(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for rule in row["rules"].split(",") if row["rules"] else ():
        shared = {name: row[name] for name in ("run_id", "user", "account", "submit_seconds", "job_id")}
        yield {"rule": rule, "severity": row["worst"], "suggestion": "#SBATCH --mem=4G", **shared}


def _nodes(row: Mapping[str, Any]) -> dict[str, Any]:
    shared = {name: row[name] for name in ("run_id", "user", "account", "submit_seconds", "job_id")}
    return {"node": f"n{row['job_id'] % 500}", **shared}
