# SPDX-License-Identifier: Apache-2.0
"""Rates by Lustre's job IDs are attributed to jobs, users and programs, and never dropped."""

from __future__ import annotations

import math

import pytest

from slurmscope.cluster.squeue import JobOwner
from slurmscope.lustre.use import (
    NO_CLIENT,
    Attribution,
    ClientRate,
    FilesystemClient,
    JobIdPatterns,
    NameService,
    Unknown,
    UseRate,
    class_of,
    filesystem_of,
)

OWNERS = {4711: JobOwner("physics", "alice", "debug"), 4712: JobOwner("chemistry", "1009", "long")}
USERS = {1001: "alice", 1002: "bob"}
GROUPS = {1001: "staff"}
ALICE = FilesystemClient("alice", "physics", "debug", "4711")


def attribution(*patterns: str) -> Attribution:
    return Attribution(JobIdPatterns(patterns), OWNERS, NameService(USERS.get, GROUPS.get))


@pytest.mark.parametrize(
    ("text", "client"),
    [
        ("4711", ALICE),
        ("4711:1001:n1", ALICE),
        ("4711:1999:n1", ALICE),  # the user ID has no name here, and the job is known
        ("4712:1009:n1", FilesystemClient("1009", "chemistry", "long", "4712")),
        ("4711_3", FilesystemClient("alice", "physics", "debug", "4711_3")),
        ("9", FilesystemClient("unknown", "unknown", "unknown", reason=Unknown.JOB)),
        ("9:1002:n1", FilesystemClient("bob", "unknown", "unknown")),
        ("cp.1001", FilesystemClient("alice", program="cp", group="staff")),
        ("cp.1002", FilesystemClient("bob", program="cp", group="unknown")),
        (":1001:n1", FilesystemClient("alice", program="unknown", group="staff")),
        (
            "cp.1999",
            FilesystemClient("unknown", program="cp", group="unknown", reason=Unknown.USER),
        ),
        ("cp", NO_CLIENT),
        ("", NO_CLIENT),
    ],
)
def test_client_of_a_job_id(text: str, client: FilesystemClient) -> None:
    assert client == attribution().find_client(text)


def test_user_who_claims_the_job_of_another_is_named() -> None:
    assert FilesystemClient("bob", "unknown", "unknown") == attribution().find_client("4711:1002:n1")


def test_user_name_of_a_configured_form_needs_no_lookup() -> None:
    found = attribution(r"(?P<program>\w+)/(?P<user>\w+)").find_client("cp/carol")

    assert FilesystemClient("carol", program="cp", group="unknown") == found


def test_every_rate_keeps_its_file_system_and_each_job_id_is_resolved_once() -> None:
    asked: list[int] = []

    def find_user(uid: int) -> str | None:
        asked.append(uid)
        return USERS.get(uid)

    joined = Attribution(JobIdPatterns(), OWNERS, NameService(find_user, GROUPS.get))
    rates = [
        UseRate("cp.1001", "work", 1.5),
        UseRate("cp.1001", "home", 2.5, "home-MDT0000", "open"),
        UseRate("4711", "work", 0.0),
        UseRate("4711", "work", math.nan),
        UseRate("4711", "work", -1.0),
    ]
    client = FilesystemClient("alice", program="cp", group="staff")

    assert (
        ClientRate(client, "work", 1.5),
        ClientRate(client, "home", 2.5, "home-MDT0000", "open"),
    ) == joined.attribute(rates)
    assert [1001] == asked


@pytest.mark.parametrize(
    ("target", "filesystem"),
    [("work-OST0012", "work"), ("a-b-MDT00ff", "a-b"), ("work-OST12", "unknown"), ("work", "unknown"), ("", "unknown")],
)
def test_file_system_of_a_target(target: str, filesystem: str) -> None:
    assert filesystem == filesystem_of(target)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("open", "open"), ("close", "open"), ("unlink", "remove"), ("getattr", "attributes"), ("punch", "other")],
)
def test_class_of_an_operation(operation: str, expected: str) -> None:
    assert expected == class_of(operation)
