# SPDX-License-Identifier: Apache-2.0
"""Parse the status that NCCL's RAS service returns, and refuse everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import MalformedAnswer
from slurmscope.node.nccl.collector import Communicator, Rank
from slurmscope.node.nccl.ras import parse_status


def rank(number: int, *counts: int, pid: int = 4000, error: object = 0, aborted: object = False) -> dict[str, Any]:
    """Write one rank by hand, with the keys that NCCL 2.28 was seen to write."""
    names = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
    return {
        "rank": number,
        "host": "172.16.64.210",
        "pid": pid + number,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": {
            "init_state": 0,
            "async_error": error,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": aborted,
        },
        "collective_counts": dict(zip(names, counts, strict=False)),
    }


def status(*ranks: object, missing: object = (), name: object = "0x27a079b828ff1a75", size: object = 2) -> bytes:
    communicator = {
        "hash": name,
        "secondary_hash": "0x1:0x2",
        "size": size,
        "ranks_count": len(ranks),
        "missing_ranks_count": 0,
        "ranks": ranks,
        "missing_ranks": missing,
    }
    return json.dumps({"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [communicator]}).encode()


def test_operations_of_each_rank_are_added_up() -> None:
    lost = {"rank": 2, "host": "172.16.64.211", "pid": 1, "status": {"unresponsive": True, "considered_dead": False}}

    [communicator] = parse_status(status(rank(0, 1, 0, 2, 0, 6650), rank(1, 1, 0, 2, 0, 6649), missing=[lost], size=3))

    assert ("0x27a079b828ff1a75", 3, 1) == (communicator.name, communicator.size, communicator.missing)
    assert [(0, 4000, 6653), (1, 4001, 6652)] == [(r.number, r.pid, r.operations) for r in communicator.ranks]
    assert {"172.16.64.210"} == {r.host for r in communicator.ranks}


@pytest.mark.parametrize(
    ("error", "aborted", "expected"),
    # 7 is the code of an operation in progress; the others are errors of CUDA and of a remote process.
    [(0, False, False), (7, False, False), (1, False, True), (6, False, True), (0, True, True), ("1", "true", False)],
)
def test_rank_with_an_error_or_aborted_has_failed(error: object, aborted: object, expected: bool) -> None:
    [communicator] = parse_status(status(rank(0, 5, error=error, aborted=aborted)))

    assert [expected] == [r.has_failed for r in communicator.ranks]


@pytest.mark.parametrize(
    "change",
    [
        {"rank": -1}, {"rank": True}, {"rank": "0"}, {"rank": None}, {"pid": 2**70}, {"pid": 1.5},
        {"host": ["172.16.64.210"]}, {"host": "x" * 65}, {"collective_counts": {"AllReduce": -1}},
        {"collective_counts": {"AllReduce": 1e300}}, {"collective_counts": [1]}, {"collective_counts": None},
        {"collective_counts": {str(n): 1 for n in range(65)}},
    ],
)  # fmt: skip
def test_rank_of_another_shape_is_left_out(change: dict[str, object]) -> None:
    [communicator] = parse_status(status({**rank(0, 5), **change}, rank(1, 5), "rank", None))

    assert [1] == [r.number for r in communicator.ranks]


@pytest.mark.parametrize("name", ["27a0", "0x", "0x" + "f" * 17, '0x1"} 1\nup 1', 7, None, ["0x1"]])
def test_communicator_of_another_shape_is_left_out(name: object) -> None:
    assert () == parse_status(status(rank(0, 5), name=name))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"{}", b'{"communicators": {}}', b"[" * 100_000, b'{"communicators": ' + b"9" * 5000 + b"}"],
)
def test_answer_of_another_shape_is_malformed(text: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_status(text)


@pytest.mark.parametrize("item", [None, 3, "x", [], {}, {"hash": "0x1", "size": 1}, {"hash": "0x1", "ranks": []}])
def test_entry_that_is_no_communicator_is_left_out(item: object) -> None:
    assert () == parse_status(json.dumps({"communicators": [item]}).encode())


def test_missing_ranks_that_are_no_list_are_none() -> None:
    [communicator] = parse_status(status(rank(0, 5), missing="everybody"))

    assert 0 == communicator.missing


def test_status_that_is_missing_is_no_failure() -> None:
    [communicator] = parse_status(status({**rank(0, 5), "status": None}))

    assert (Rank(number=0, host="172.16.64.210", pid=4000, operations=5, has_failed=False),) == communicator.ranks


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: (
    st.lists(inner) | st.dictionaries(st.sampled_from(["communicators", "hash", "size", "ranks", "rank", "pid", "host",
                                                       "status", "collective_counts", "missing_ranks"]), inner)
), max_leaves=20))  # fmt: skip
def test_any_json_is_parsed_or_malformed(value: object) -> None:
    try:
        found = parse_status(json.dumps(value).encode())
    except MalformedAnswer:
        return
    assert all(isinstance(communicator, Communicator) for communicator in found)
