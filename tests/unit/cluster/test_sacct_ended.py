# SPDX-License-Identifier: Apache-2.0
"""What sacct prints becomes ended jobs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.completions import COLUMNS, EndedJob, ExitClass, arguments, parse_ended_jobs
from slurmscope.core.errors import MalformedAnswer

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SEPARATOR = "c0ffee"

PLAIN = {
    "JobID": "12", "JobIDRaw": "12", "Submit": "1794733160", "Start": "1794733163", "End": "1794733263",
    "Partition": "debug", "Account": "physics", "State": "COMPLETED", "ExitCode": "0:0", "ElapsedRaw": "100",
    "CPUTimeRAW": "400", "AllocTRES": "billing=4,cpu=4,mem=400M,node=1",
}  # fmt: skip


def row(**changes: str) -> bytes:
    return f"|{SEPARATOR}|".join({**PLAIN, **changes}[column] for column in COLUMNS).encode() + b"\n"


def parse_one(**changes: str) -> EndedJob:
    (job,), unreadable_rows = parse_ended_jobs(row(**changes), SEPARATOR)
    assert 0 == unreadable_rows
    return job


@pytest.fixture(scope="module")
def captured() -> dict[tuple[int, int], EndedJob]:
    """Give what the lab's jobs left behind, by job ID and submit time."""
    answer = (FIXTURES / "slurm-22.05" / "sacct-ended.txt").read_bytes()
    jobs, unreadable_rows = parse_ended_jobs(answer, SEPARATOR)
    assert 0 == unreadable_rows
    return {job.identity: job for job in jobs}


class TestArguments:
    def test_both_edges_of_the_window_are_seconds_since_1970(self) -> None:
        given_arguments = arguments(1_794_733_163, 1_794_733_200, SEPARATOR)

        assert "--starttime=uts1794733163" in given_arguments
        assert "--endtime=uts1794733200" in given_arguments

    def test_no_column_holds_what_users_write(self) -> None:
        written_by_users = {
            "jobname",
            "comment",
            "admincomment",
            "workdir",
            "submitline",
            "constraints",
            "wckey",
            "user",
        }

        assert set() == written_by_users & {column.lower() for column in COLUMNS}

    def test_jobs_of_every_user_and_every_run_are_requested(self) -> None:
        assert {"--allusers", "--allocations", "--duplicates", "--local"} <= set(arguments(1, 2, SEPARATOR))


class TestCapturedAnswer:
    def test_every_row_is_a_job(self, captured: dict[tuple[int, int], EndedJob]) -> None:
        counts = Counter(job.state for job in captured.values())

        assert {"COMPLETED": 17, "CANCELLED": 6, "FAILED": 3, "NODE_FAIL": 2} == dict(counts.most_common(4))
        assert {"OUT_OF_MEMORY", "REQUEUED", "TIMEOUT"} == {state for state, count in counts.items() if count == 1}

    @pytest.mark.parametrize(
        ("job_id", "expected"),
        [
            (12, ExitClass.OK),
            (13, ExitClass.ERROR),  # exit 3
            (14, ExitClass.SIGNAL),  # killed by SIGSEGV
            (15, ExitClass.ERROR),  # a child was killed, the script passed its exit code on
            (16, ExitClass.NONE),  # out of memory
            (20, ExitClass.NONE),  # cancelled before it started
            (27, ExitClass.NONE),  # timed out
        ],
    )
    def test_exit_code_is_classified(
        self, captured: dict[tuple[int, int], EndedJob], job_id: int, expected: ExitClass
    ) -> None:
        assert expected is captured[job_id, 1_794_733_163].exit_class

    def test_requeued_job_ends_twice(self, captured: dict[tuple[int, int], EndedJob]) -> None:
        first, second = captured[22, 1_794_733_163], captured[22, 1_794_733_165]

        assert ("REQUEUED", 1_794_733_165, 2) == (first.state, first.end_time, first.elapsed_seconds)
        assert ("COMPLETED", 1_794_733_289, 3) == (second.state, second.end_time, second.elapsed_seconds)

    def test_held_cpus_and_gpus_are_read(self, captured: dict[tuple[int, int], EndedJob]) -> None:
        job = captured[21, 1_794_733_163]

        assert ("gpus", "chemistry", 2, 4, 2) == (
            job.partition,
            job.account,
            job.elapsed_seconds,
            job.cpu_seconds,
            job.gpus,
        )

    def test_each_array_task_and_each_component_is_a_job(self, captured: dict[tuple[int, int], EndedJob]) -> None:
        assert {17, 23, 24, 25, 26, 28, 29} <= {job_id for job_id, _ in captured}

    @pytest.mark.parametrize("identity", [(7, 1_794_733_139), (20, 1_794_733_163), (37, 1_794_733_394)])
    def test_job_that_never_started_has_no_run_time(
        self, captured: dict[tuple[int, int], EndedJob], identity: tuple[int, int]
    ) -> None:
        assert captured[identity].elapsed_seconds is None

    def test_job_that_ran_for_no_time_has_run(self, captured: dict[tuple[int, int], EndedJob]) -> None:
        assert 0 == captured[12, 1_794_733_163].elapsed_seconds

    def test_job_counts_for_the_first_partition_it_named(self, captured: dict[tuple[int, int], EndedJob]) -> None:
        assert "debug" == captured[7, 1_794_733_139].partition


class TestRows:
    def test_plain_row(self) -> None:
        assert (
            EndedJob(
                job_id=12,
                submit_time=1_794_733_160,
                end_time=1_794_733_263,
                partition="debug",
                account="physics",
                state="COMPLETED",
                elapsed_seconds=100,
                cpu_seconds=400,
                gpus=0,
            )
            == parse_one()
        )

    def test_who_cancelled_is_left_out(self) -> None:
        assert "CANCELLED" == parse_one(State="CANCELLED by 1001").state

    @pytest.mark.parametrize(
        ("shown_id", "tasks"),
        [
            ("7", 1),
            ("7_3", 1),
            ("7+1", 1),
            ("7_[5]", 1),
            ("7_[1-7]", 7),
            ("7_[1-3,9,20-21]", 6),
            ("7_[0-10:5]", 3),
            ("7_[1-100%4]", 100),
            ("7_[1,3,5...]", 3),
            ("7_[9-1]", 1),
            ("7_[", 1),
            ("7_[,]", 1),
        ],
    )
    def test_tasks_cancelled_together_are_counted(self, shown_id: str, tasks: int) -> None:
        assert tasks == parse_one(JobID=shown_id).tasks

    @pytest.mark.parametrize(
        ("tres", "gpus"),
        [
            ("billing=2,cpu=2,gres/gpu=3,mem=200M,node=1", 3),
            ("cpu=2,gres/gpu:a100=2,gres/gpu:h100=1,node=1", 3),
            ("cpu=2,gres/gpu=3,gres/gpu:a100=3,gres/gpumem=80G,node=1", 3),
            ("cpu=2,node=1", 0),
            ("what is this", None),
        ],
    )
    def test_gpus_are_counted_once(self, tres: str, gpus: int | None) -> None:
        assert gpus == parse_one(AllocTRES=tres).gpus

    def test_launch_failure_has_no_exit_class(self) -> None:
        assert ExitClass.NONE is parse_one(State="FAILED", ExitCode="0:0").exit_class

    def test_job_without_exit_code_is_counted_by_its_state(self) -> None:
        job = parse_one(State="NODE_FAIL", ExitCode="")

        assert ("NODE_FAIL", ExitClass.NONE) == (job.state, job.exit_class)

    def test_account_that_is_no_utf8_is_kept(self) -> None:
        (job,), _ = parse_ended_jobs(row(Account="XX").replace(b"XX", b"caf\xe9"), SEPARATOR)

        assert b"caf\xe9" == job.account.encode("utf-8", "surrogateescape")


class TestOddAnswers:
    def test_no_output_is_a_time_without_ends(self) -> None:
        assert ((), 0) == parse_ended_jobs(b"", SEPARATOR)

    def test_answer_cut_in_a_line_is_no_answer(self) -> None:
        with pytest.raises(MalformedAnswer, match="in the middle of a line"):
            parse_ended_jobs(row() + row()[:-1], SEPARATOR)

    @pytest.mark.parametrize(
        "odd",
        [
            b"Welcome to the cluster!\n",
            b"\n",
            row(End="Unknown"),
            row(JobIDRaw="12.batch"),
            row(ExitCode="0"),
            row(State=""),
            row(ElapsedRaw="-5"),
            row(Submit="9" * 16),
            row(JobIDRaw="١٢"),
        ],
    )
    def test_odd_row_costs_only_itself(self, odd: bytes) -> None:
        jobs, unreadable_rows = parse_ended_jobs(row() + odd, SEPARATOR)

        assert [12] == [job.job_id for job in jobs]
        assert 1 == unreadable_rows

    def test_answer_without_a_good_row_is_no_answer(self) -> None:
        with pytest.raises(MalformedAnswer, match="none of 2 rows"):
            parse_ended_jobs(b"sacct has a new look\nin this release\n", SEPARATOR)

    def test_answer_with_another_separator_is_no_answer(self) -> None:
        with pytest.raises(MalformedAnswer):
            parse_ended_jobs(row(), "decaf")

    @given(st.binary(max_size=300))
    def test_any_bytes_are_read_or_rejected(self, answer: bytes) -> None:
        try:
            jobs, unreadable_rows = parse_ended_jobs(answer, SEPARATOR)
        except MalformedAnswer:
            assert answer
        else:
            assert answer.count(b"\n") == len(jobs) + unreadable_rows

    @given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=30), min_size=12, max_size=12))
    def test_any_columns_are_read_or_rejected(self, columns: list[str]) -> None:
        answer = f"|{SEPARATOR}|".join(columns).encode("utf-8", "surrogatepass") + b"\n"

        jobs, unreadable_rows = parse_ended_jobs(row() + answer, SEPARATOR)

        assert 2 == len(jobs) + unreadable_rows
