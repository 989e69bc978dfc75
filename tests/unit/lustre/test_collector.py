# SPDX-License-Identifier: Apache-2.0
"""Rates of file system clients become metrics, under the older names and by file system."""

from __future__ import annotations

from typing import Any

import pytest

from slurmscope.lustre.feature import COLLECTOR, SCRAPE_OK, STAGES, LustreOptions
from slurmscope.lustre.use import ClientRate, FilesystemClient, FilesystemUse, Quantity, Unknown
from slurmscope.metrics.family import Family

ALICE = FilesystemClient("alice", "physics", "debug", "4711")
ALICE_TOO = FilesystemClient("alice", "physics", "long", "4712")
BOB = FilesystemClient("bob", "unknown", "unknown")
CP = FilesystemClient("alice", program="cp", group="staff")
TAR = FilesystemClient("bob", program="tar", group="unknown")
NO_JOB = FilesystemClient("unknown", "unknown", "unknown", reason=Unknown.JOB)
NO_USER = FilesystemClient("unknown", program="cp", group="unknown", reason=Unknown.USER)
NO_TEXT = FilesystemClient("unknown", reason=Unknown.TEXT)

READ = (
    ClientRate(ALICE, "work", 1.0),
    ClientRate(ALICE, "home", 2.0),
    ClientRate(ALICE_TOO, "work", 4.0),
    ClientRate(BOB, "work", 8.0),
    ClientRate(CP, "work", 16.0),
    ClientRate(TAR, "work", 32.0),
    ClientRate(NO_JOB, "work", 64.0),
    ClientRate(NO_USER, "work", 128.0),
    ClientRate(NO_TEXT, "home", 256.0),
)
METADATA = (
    ClientRate(ALICE, "work", 1.0, "work-MDT0000", "open"),
    ClientRate(ALICE, "work", 2.0, "work-MDT0000", "close"),
    ClientRate(ALICE, "work", 4.0, "work-MDT0001", "unlink"),
    ClientRate(CP, "work", 8.0, "work-MDT0001", "punch"),
)
USE = FilesystemUse(
    rates={Quantity.READ: READ, Quantity.WRITE: (), Quantity.METADATA: METADATA},
    answered_at={Quantity.READ: 100.0, Quantity.WRITE: 90.0, Quantity.METADATA: 100.0},
)


def collect(use: FilesystemUse = USE, **options: Any) -> dict[str, dict[Any, Any]]:
    families: list[Family] = list(COLLECTOR.collect(LustreOptions(**options), lustre=use))
    return {family.metric.name: dict(family.samples) for family in families}


def test_every_declared_metric_is_served() -> None:
    # Whether the scrape is good, and how long it took, is known only when the page is made.
    assert {metric.name for metric in COLLECTOR.metrics} == {*collect(), SCRAPE_OK.name, STAGES.name}


def test_throughput_by_account_and_program_under_the_older_names() -> None:
    served = collect()

    assert {
        ("physics", "alice"): 7.0,
        ("unknown", "bob"): 8.0,
        ("unknown", "unknown"): 64.0,
    } == served["cluster_job_read_throughput_bytes"]
    assert {
        ("cp", "staff", "alice"): 16.0,
        ("tar", "unknown", "bob"): 32.0,
        ("cp", "unknown", "unknown"): 128.0,
    } == served["cluster_proc_read_throughput_bytes"]
    assert {} == served["cluster_job_write_throughput_bytes"]


def test_metadata_operations_by_target_under_the_older_names() -> None:
    served = collect()

    assert {
        ("physics", "alice", "work-MDT0000"): 3.0,
        ("physics", "alice", "work-MDT0001"): 4.0,
    } == served["cluster_job_metadata_operations"]
    assert {("cp", "staff", "alice", "work-MDT0001"): 8.0} == served["cluster_proc_metadata_operations"]


def test_use_by_file_system_partition_and_class_of_operation() -> None:
    served = collect()

    assert {
        ("work", "physics", "alice", "debug"): 1.0,
        ("home", "physics", "alice", "debug"): 2.0,
        ("work", "physics", "alice", "long"): 4.0,
        ("work", "unknown", "bob", "unknown"): 8.0,
        ("work", "unknown", "unknown", "unknown"): 64.0,
    } == served["cluster_filesystem_read_bytes_per_second"]
    assert {
        ("work", "physics", "alice", "debug", "open"): 3.0,
        ("work", "physics", "alice", "debug", "remove"): 4.0,
    } == served["cluster_filesystem_metadata_operations_per_second"]
    assert {("work", "cp", "staff", "alice", "other"): 8.0} == served[
        "cluster_filesystem_program_metadata_operations_per_second"
    ]


def test_what_has_no_user_is_exported_by_reason() -> None:
    served = collect()

    assert {
        ("work", "job"): 64.0,
        ("work", "user"): 128.0,
        ("work", "text"): 0.0,
        ("home", "job"): 0.0,
        ("home", "user"): 0.0,
        ("home", "text"): 256.0,
    } == served["cluster_filesystem_unknown_read_bytes_per_second"]


def test_every_byte_is_in_exactly_one_of_jobs_programs_and_unreadable_ids() -> None:
    served = collect()
    views = ("cluster_filesystem_read_bytes_per_second", "cluster_filesystem_program_read_bytes_per_second")
    unreadable = served["cluster_filesystem_unknown_read_bytes_per_second"]["home", "text"]

    assert sum(rate.per_second for rate in READ) == sum(sum(served[view].values()) for view in views) + unreadable


def test_top_jobs_are_bounded_per_file_system() -> None:
    name = "cluster_filesystem_top_job_read_bytes_per_second"

    assert {
        ("work", "4712", "physics", "alice", "long"): 4.0,
        ("work", "4711", "physics", "alice", "debug"): 1.0,
        ("home", "4711", "physics", "alice", "debug"): 2.0,
    } == collect()[name]
    assert {("work", "4712"), ("home", "4711")} == {labels[:2] for labels in collect(top_jobs=1)[name]}
    assert {} == collect(top_jobs=0)[name]


def test_programs_above_the_limit_are_summed_by_user() -> None:
    busy = tuple(
        ClientRate(FilesystemClient(user, program=f"p{number}", group="staff"), "work", float(number))
        for user in ("alice", "bob")
        for number in range(1, 11)
    )

    served = collect(FilesystemUse(rates={Quantity.WRITE: busy}), programs=2)["cluster_proc_write_throughput_bytes"]

    assert {
        ("p10", "staff", "alice"): 10.0,
        ("p10", "staff", "bob"): 10.0,
        ("other", "staff", "alice"): 45.0,
        ("other", "staff", "bob"): 45.0,
    } == served


def test_quantity_without_an_answer_is_absent_not_zero() -> None:
    served = collect(FilesystemUse(rates={Quantity.READ: ()}, answered_at={Quantity.READ: 7.0}))

    assert "cluster_job_read_throughput_bytes" in served
    assert not [name for name in served if "write" in name or "metadata" in name]
    assert {("read",): 7.0} == served["cluster_exporter_answer_timestamp_seconds"]


@pytest.mark.parametrize(
    "options",
    [
        {"range": 0.0},
        {"job_id": ("%x",)},
        {"dialect": "beegfs"},
    ],
)
def test_options_are_checked(options: dict[str, object]) -> None:
    declared = {field.name: field for field in LustreOptions.__dataclass_fields__.values()}
    ((name, value),) = options.items()

    with pytest.raises(ValueError, match=r"."):
        declared[name].metadata["parse"](value)
