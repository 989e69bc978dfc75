# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import MalformedAnswer
from slurmscope.jobs.pending.queue import COLUMNS, parse_limit, parse_pending

WORD = "0123456789abcdef"
ROW = {
    "JobID": "17", "ArrayJobID": "17", "ArrayTaskID": "N/A", "HetJobID": "N/A", "HetJobOffset": "N/A",
    "UserName": "ada", "Account": "physics", "Partition": "batch,long", "QOS": "normal", "State": "PENDING",
    "Reason": "Resources", "SubmitTime": "1760000000", "EligibleTime": "1760000001", "StartTime": "1760003600",
    "LastSchedEval": "1760000100", "TimeLimit": "1-02:00:00", "NumNodes": "2", "NumCPUs": "8",
    "tres-alloc": "cpu=8,mem=16G,node=2,billing=8,gres/gpu=4", "PriorityLong": "4294", "Dependency": "(null)",
    "Licenses": "matlab:2", "Reservation": "(null)", "Feature": "avx512", "SchedNodes": "(null)", "Name": "train",
}  # fmt: skip


def render(*rows: dict[str, str]) -> bytes:
    mark = f"\x1f{WORD}"
    return "".join(mark.join({**ROW, **row}[name] for name in COLUMNS) + f"{mark}{mark}\n" for row in rows).encode()


def test_every_column_is_read() -> None:
    queue = parse_pending(render({}), WORD, now_seconds=5.0, cluster="alpha")
    (job,) = queue.jobs
    assert ("alpha", 5.0, 0) == (queue.cluster, queue.taken_at_seconds, queue.unreadable_rows)
    assert ("17", "train", "ada", "physics", ("batch", "long")) == (
        job.shown_id, job.name, job.user, job.account, job.partitions,
    )  # fmt: skip
    assert (1760000000, 1760000001, 1760003600, 1760000100, 93600) == (
        job.submit_seconds, job.eligible_seconds, job.start_seconds, job.evaluated_seconds, job.time_limit_seconds,
    )  # fmt: skip
    assert (2, 8, 16 << 30, 4, 4294) == (job.nodes, job.cpus, job.memory_bytes, job.gpus, job.priority)
    assert ("", "matlab:2", "", "avx512", "") == (
        job.dependency, job.licenses, job.reservation, job.features, job.planned_nodes,
    )  # fmt: skip


def test_pending_array_is_one_job_with_its_tasks() -> None:
    (job,) = parse_pending(render({"ArrayTaskID": "3-24,30%2"}), WORD, now_seconds=0.0).jobs
    assert ("17_[3-24,30%2]", 23) == (job.shown_id, job.task_count)


def test_unknown_start_is_absent_not_zero() -> None:
    (job,) = parse_pending(
        render({"StartTime": "N/A", "LastSchedEval": "Unknown", "EligibleTime": "0"}), WORD, now_seconds=0.0
    ).jobs
    assert (None, None, None) == (job.start_seconds, job.evaluated_seconds, job.eligible_seconds)


def test_jobs_are_ordered_by_submission_newest_first() -> None:
    rows = ({"JobID": "1", "SubmitTime": "1760000005"}, {"JobID": "3"}, {"JobID": "2"})
    assert [1, 3, 2] == [job.job_id for job in parse_pending(render(*rows), WORD, now_seconds=0.0).jobs]


@pytest.mark.parametrize(
    "broken", [{"JobID": "x"}, {"SubmitTime": "Unknown"}, {"tres-alloc": "?"}, {"ArrayTaskID": "1-"}, {"NumCPUs": ""}]
)
def test_unreadable_row_costs_itself_only(broken: dict[str, str]) -> None:
    queue = parse_pending(render({}, broken), WORD, now_seconds=0.0)
    assert (1, 1) == (len(queue.jobs), queue.unreadable_rows)


def test_answer_that_ends_in_a_row_is_a_failure() -> None:
    with pytest.raises(MalformedAnswer):
        parse_pending(render({})[:-3], WORD, now_seconds=0.0)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
def test_no_name_can_forge_a_row(name: str) -> None:
    if WORD in name:
        return
    (job,) = parse_pending(render({"Name": name}), WORD, now_seconds=0.0).jobs
    assert ("ada", name) == (job.user, job.name)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10:00", 600), ("0:30", 30), ("1:00:00", 3600), ("1-00:00:00", 86400), ("2-03:00:05", 183605),
        ("UNLIMITED", None), ("NOT_SET", None), ("Partition_Limit", None), ("", None), ("1-2-3", None),
    ],
)  # fmt: skip
def test_time_limits_are_read_as_squeue_prints_them(text: str, seconds: int | None) -> None:
    assert seconds == parse_limit(text)
