# SPDX-License-Identifier: Apache-2.0
"""Process groups are shown as the older tool did, and those outside jobs in numbers that can be rated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.write import Format, write
from slurmscope.node.process_groups import (
    COLLECTOR,
    ProcessGroup,
    ProcessTable,
    UserUse,
    collect,
)

SHELL = ProcessGroup(
    group_id=10,
    user="alice",
    command="bash",
    processes=2,
    cpu_percent=0.1 + 0.2,
    memory_percent=0.0,
    cpu_seconds=1.5,
    resident_bytes=4096,
)
TASK = ProcessGroup(
    group_id=20,
    user="bob",
    command="kworker/0:0H-events_highpri",
    processes=1,
    cpu_percent=199.0,
    memory_percent=12.5,
    cpu_seconds=500.0,
    resident_bytes=8_000_000,
    has_job_processes=True,
)
TABLE = ProcessTable(
    groups=(SHELL, TASK),
    users=(
        UserUse(user="alice", processes=2, cpu_seconds=9.0, resident_bytes=4096),
        UserUse(user="carol", processes=0, cpu_seconds=3.0, resident_bytes=0),
    ),
)
ALICE = ("alice", "10", "bash")
BOB = ("bob", "20", "kworker/0:0H-eve")


def shown(
    table: ProcessTable = TABLE,
) -> dict[str, Mapping[tuple[str, ...], object]]:
    families = collect(NoOptions(), process_groups=table)
    return {family.metric.name: dict(family.samples) for family in families}


def test_old_names_show_every_group() -> None:
    samples = shown()

    assert {ALICE: 0.3, BOB: 199.0} == samples["cpu_usage"]
    assert {ALICE: 0.0, BOB: 12.5} == samples["ram_usage"]


def test_percentages_have_two_decimals() -> None:
    group = replace(SHELL, cpu_percent=33.3333, memory_percent=66.6666)
    samples = shown(ProcessTable(groups=(group,)))

    assert {ALICE: 33.33} == samples["cpu_usage"]
    assert {ALICE: 66.67} == samples["ram_usage"]


def test_user_with_very_many_groups_gets_a_bounded_number_of_series() -> None:
    many = tuple(
        replace(SHELL, group_id=1000 + number, cpu_percent=0.5, cpu_seconds=number, resident_bytes=10)
        for number in range(16_000)
    )
    samples = shown(ProcessTable(groups=(*many, TASK)))
    other = ("alice", "", "other")
    largest = {("alice", str(pgid), "bash") for pgid in range(16_800, 17_000)}

    assert {*largest, other, BOB} == set(samples["cpu_usage"])
    assert 15_800 * 0.5 == samples["cpu_usage"][other]
    assert 15_800 * 10 == samples["login_group_resident_bytes"][other]
    assert largest == set(samples["login_group_cpu_seconds_total"])
    assert {("alice",): 15_800} == samples["login_groups_merged"]


def test_new_names_leave_jobs_out() -> None:
    samples = shown()

    assert {ALICE: 1.5} == samples["login_group_cpu_seconds_total"]
    assert {ALICE: 4096} == samples["login_group_resident_bytes"]


def test_users_who_left_keep_their_total() -> None:
    samples = shown()

    assert {("alice",): 9.0, ("carol",): 3.0} == samples["login_user_cpu_seconds_total"]
    assert {("alice",): 4096, ("carol",): 0} == samples["login_user_resident_bytes"]
    assert {("alice",): 2, ("carol",): 0} == samples["login_user_processes"]


def test_emitted_families_are_the_declared_ones() -> None:
    assert [metric.name for metric in COLLECTOR.metrics] == list(shown())


def test_hidden_processes_are_reported() -> None:
    assert {(): 1} == shown()["login_processes_complete"]
    assert {(): 0} == shown(ProcessTable(is_complete=False))["login_processes_complete"]


def test_page_is_like_that_of_the_older_tool() -> None:
    page = b"".join(write(collect(NoOptions(), process_groups=TABLE), Format.TEXT)).decode()

    assert '\ncpu_usage{user="alice",pgid="10",command="bash"} 0.3\n' in page
    assert "# TYPE cpu_usage gauge\n" in page
    assert "# TYPE login_user_cpu_seconds_total counter\n" in page


def test_collector_is_off_by_default() -> None:
    assert not COLLECTOR.is_default
