# SPDX-License-Identifier: Apache-2.0
"""Comments of ended jobs are written once, a job that slurmdbd refuses delays no other, and none is spoiled twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from slurmscope.core.errors import CommandMissing, CommandTimedOut, SourceError
from slurmscope.jobs.js1 import FROM_COMMENT, write_js1
from slurmscope.jobs.record import JobRecord
from slurmscope.reporter.admin_comments import MAX_TRIES, ROUND_SECONDS, AdminComments
from tests.fakes.reporting import FakeArchive
from tests.fakes.reports import START, make_record, make_report


class Sacctmgr:
    """Note what is written; fail for some jobs, and take a second for each call."""

    def __init__(self, *refused: int) -> None:
        self.refused = {str(job) for job in refused}
        self.calls: list[str] = []
        self.written: dict[str, str] = {}
        self.later: list[JobRecord] = []
        """Runs in accounting besides those of the reports."""
        self.is_readable = True
        self.now = 0.0
        self.release = "slurm-wlm 24.11.1"
        self.change: Callable[[str], str] = str
        """What sacctmgr makes of a comment."""
        self.shown: dict[str, str] = {}
        """What sacct prints of a job instead of what was written."""
        self.checkpoints = FakeArchive()

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        if arguments == ("--version",):
            if not self.release:
                raise CommandMissing("sacctmgr", "is not installed")
            return f"{self.release}\n".encode()
        if name == "sacct":
            job = arguments[2].removeprefix("--jobs=")
            expected = ("--allusers", "--clusters=lab", f"--jobs={job}", "--allocations", "--noheader", "--parsable2")
            assert (*expected, "--format=AdminComment") == tuple(arguments)
            return f"{self.shown.get(job, self.written[job])}\n".encode()
        assert ("sacctmgr", "-i", "-Q", "update", "job", "where") == (name, *arguments[:5])
        job = arguments[5].removeprefix("jobid=")
        assert ("cluster=lab", "set") == tuple(arguments[6:8])
        self.calls.append(job)
        self.now += 1
        if job in self.refused:
            raise CommandTimedOut("sacctmgr", "timed out after 8 s")
        self.written[job] = self.change(arguments[8].removeprefix("AdminComment="))
        return b""

    def read_jobs(self, job_ids: Sequence[int]) -> Sequence[JobRecord]:
        if not self.is_readable:
            raise SourceError("slurmdbd does not answer")
        return [*map(make_record, job_ids), *(run for run in self.later if run.job_id in job_ids)]

    def comments(self) -> AdminComments:
        return AdminComments(self.run, self.read_jobs, self.checkpoints, "lab", lambda: self.now)


def test_comment_of_an_ended_job_is_written_once() -> None:
    sacctmgr, report = Sacctmgr(), make_report()
    comments = sacctmgr.comments()
    comments.add([report])
    comments.write()
    comments.write()
    assert (["4711"], {"4711": write_js1(report.summary)}) == (sacctmgr.calls, sacctmgr.written)


def test_other_jobs_have_none() -> None:
    sacctmgr = Sacctmgr()
    comments = sacctmgr.comments()
    comments.add(
        [
            make_report(make_record(1, state="RUNNING", end_seconds=None)),
            make_report(make_record(2, state="CANCELLED", start_seconds=None, end_seconds=START)),
            make_report(make_record(3), is_incomplete=True),
            make_report(make_record(4), missing=(FROM_COMMENT,)),
        ]
    )
    comments.write()
    assert [] == sacctmgr.calls


def test_refused_job_is_tried_some_rounds_after_the_others() -> None:
    sacctmgr = Sacctmgr(1)
    comments = sacctmgr.comments()
    comments.add([make_report(make_record(job)) for job in (1, 2, 3)])
    for _ in range(MAX_TRIES + 2):
        comments.write()
    assert ({"2", "3"}, MAX_TRIES) == ({*sacctmgr.written}, sacctmgr.calls.count("1"))


def test_unreachable_slurmdbd_costs_three_calls_a_round_and_no_comment() -> None:
    sacctmgr = Sacctmgr(*range(1, 21))
    comments = sacctmgr.comments()
    comments.add([make_report(make_record(30))])
    comments.write()
    sacctmgr.calls.clear()
    comments.add([make_report(make_record(job)) for job in range(1, 21)])
    comments.write()
    assert ["1", "2", "3"] == sacctmgr.calls
    sacctmgr.refused = set()
    comments.write()
    assert {*map(str, (*range(1, 21), 30))} == {*sacctmgr.written}


def test_comments_beyond_the_limit_are_dropped_with_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sacctmgr = Sacctmgr()
    comments = AdminComments(
        sacctmgr.run, sacctmgr.read_jobs, sacctmgr.checkpoints, "lab", lambda: sacctmgr.now, max_waiting=2
    )
    comments.add([make_report(make_record(job)) for job in range(1, 6)])
    comments.add([make_report(make_record(1))])
    (line,) = caplog.records
    assert {"cluster": "lab", "jobs": 3, "waiting": 2} == line.__dict__["fields"]
    comments.write()
    assert ["1", "2"] == sacctmgr.calls


def test_round_ends_after_its_time() -> None:
    sacctmgr = Sacctmgr()
    comments = sacctmgr.comments()
    comments.add([make_report(make_record(job)) for job in range(1, 101)])
    comments.write()
    assert ROUND_SECONDS == len(sacctmgr.calls)


def test_parts_have_the_ids_of_parts() -> None:
    # One task of an array has its ID, as the first part of a heterogeneous job: sacctmgr would write to all parts.
    sacctmgr = Sacctmgr()
    comments = sacctmgr.comments()
    comments.add(
        [
            make_report(make_record(12, array_job_id=12, array_task_id=3)),
            make_report(make_record(20, het_job_id=20, het_offset=0)),
        ]
    )
    comments.write()
    assert ["12_3", "20+0"] == sacctmgr.calls


def test_requeued_run_is_not_written_to_the_run_after_it() -> None:
    # sacctmgr writes to the newest run of an ID.
    sacctmgr, first = Sacctmgr(), make_record(1, state="NODE_FAIL")
    sacctmgr.later = [make_record(1, state="RUNNING", submit_seconds=first.submit_seconds + 60, end_seconds=None)]
    comments = sacctmgr.comments()
    comments.add([make_report(first), make_report(make_record(2))])
    comments.write()
    assert ["2"] == sacctmgr.calls


def test_report_of_an_earlier_run_that_comes_later_replaces_nothing() -> None:
    sacctmgr, first = Sacctmgr(), make_record(1, cpus=2)
    second = make_report(make_record(1, submit_seconds=first.submit_seconds + 60))
    sacctmgr.later = [second.record]
    comments = sacctmgr.comments()
    comments.add([second])
    comments.add([make_report(first)])
    comments.write()
    assert {"1": write_js1(second.summary)} == sacctmgr.written


def test_nothing_is_written_or_lost_while_accounting_cannot_be_read() -> None:
    sacctmgr = Sacctmgr()
    sacctmgr.is_readable = False
    comments = sacctmgr.comments()
    comments.add([make_report(make_record(1))])
    comments.write()
    assert [] == sacctmgr.calls
    sacctmgr.is_readable = True
    comments.write()
    assert ["1"] == sacctmgr.calls


JOBS = tuple(make_report(make_record(job)) for job in range(1, 21))


@pytest.mark.parametrize("change", [str.lower, lambda comment: comment[:-1]])
def test_nothing_is_written_after_a_comment_that_sacctmgr_changed(
    change: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    sacctmgr = Sacctmgr()
    sacctmgr.change = change
    comments = sacctmgr.comments()
    for _ in range(3):
        comments.add(JOBS)
        comments.write()

    assert ["1"] == sacctmgr.calls
    assert comments.is_stopped
    (logged,) = [record.message for record in caplog.records]
    assert "no AdminComment is written any more" in logged


def test_only_another_release_of_sacctmgr_is_tried_after_a_restart() -> None:
    sacctmgr = Sacctmgr()
    sacctmgr.change = str.lower
    for _ in range(2):
        comments = sacctmgr.comments()
        comments.add(JOBS)
        comments.write()
        assert (["1"], True) == (sacctmgr.calls, comments.is_stopped)
    sacctmgr.release, sacctmgr.change = "slurm-wlm 25.05.1", str
    comments = sacctmgr.comments()
    comments.add(JOBS[1:])
    comments.write()

    assert (20, False) == (len(sacctmgr.calls), comments.is_stopped)


@pytest.mark.parametrize("shown", ["", "written by another program"])
def test_one_comment_a_round_is_written_until_one_is_read_again(shown: str) -> None:
    # slurmdbd may have it a moment later; a site's own epilog may write there as well.
    sacctmgr = Sacctmgr()
    sacctmgr.shown = dict.fromkeys(("1", "2"), shown)
    comments = sacctmgr.comments()
    comments.add(JOBS)
    calls = []
    for _ in range(2):
        comments.write()
        calls.append(len(sacctmgr.calls))
    comments.write()

    assert [1, 2] == calls
    assert (False, 18) == (comments.is_stopped, len({*sacctmgr.calls} - {"1", "2"}))


def test_release_that_cannot_be_read_fails_no_round_and_loses_no_comment() -> None:
    sacctmgr = Sacctmgr()
    sacctmgr.checkpoints.write_checkpoint("AdminComment changed by: lab", "slurm-wlm 22.05.8")
    sacctmgr.release = ""
    comments = sacctmgr.comments()
    comments.add([make_report()])

    comments.write()
    assert (None, []) == (comments.is_stopped, sacctmgr.calls)

    sacctmgr.release = "slurm-wlm 24.11.1"
    comments.write()
    assert (False, ["4711"]) == (comments.is_stopped, sacctmgr.calls)
