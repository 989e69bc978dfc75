# SPDX-License-Identifier: Apache-2.0
"""Slurm's subjects are understood, and accounting is given time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.report import JobReport
from slurmscope.mail.mail_program import MailSubject, parse_subject, wait_for_end
from tests.fakes.reports import make_record, make_report

RUNNING = make_report(make_record(state="RUNNING", end_seconds=None))
ENDED = make_report()
# The end came to slurmdbd before the start.
PARTIAL = make_report(make_record(name="allocation", partition="", requested_cpus=None))


@pytest.mark.parametrize(
    ("subject", "job", "has_ended"),
    [
        ("Slurm Job_id=12 Name=x Began, Queued time 00:00:01", "12", False),
        ("Slurm Job_id=12 Name=x Ended, Run time 00:10:00, COMPLETED, ExitCode 0", "12", True),
        ("Slurm Job_id=12 Name=x Failed, Run time 1-00:10:00, FAILED, ExitCode 3", "12", True),
        ("Slurm Job_id=12 Name=x Failed, Run time 00:10:00, TIMEOUT", "12", True),
        ("Slurm Job_id=12 Name=x Failed, Run time 00:00:01, OUT_OF_MEMORY", "12", True),
        ("Slurm Job_id=12 Name=x Requeued, Run time 00:10:00, NODE_FAIL", "12", False),
        ("Slurm Job_id=12 Name=x Reached 80% of time limit, Run time 00:08:00", "12", False),
        ("Slurm Job_id=12 Name=x Reached time limit, Run time 00:10:00", "12", False),
        ("Slurm Job_id=12 Name=x Invalid dependency", "12", False),
        ("Slurm Job_id=12 Name=x StageOut/Teardown", "12", False),
        ("Slurm Array Task Job_id=12_3 (15) Name=x Ended, Run time 00:10:00, COMPLETED, ExitCode 0", "12_3", True),
        ("Slurm Array Summary Job_id=12_* (12) Name=x Ended, COMPLETED, ExitCode [0-0]", "12_*", True),
        ("Slurm Array Summary Job_id=12_* (12) Name=x Began", "12_*", False),
        ("Slurm Job_id=12 Name=Job_id=13 Ended, of course Began, Queued time 00:00:01", "12", False),
        ("Slurm Job_id=12 Name=it Began, then Ended, Run time 00:10:00, COMPLETED, ExitCode 0", "12", True),
        ("Slurm Job_id=12 Name=two\nlines Ended, Run time 00:10:00, COMPLETED, ExitCode 0", "12", True),
    ],
)
def test_subject_has_job_and_event(subject: str, job: str, has_ended: bool) -> None:
    assert MailSubject(job, has_ended) == parse_subject(subject)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "Slurm",
        "Lunch Ended",
        "Slurm Job_id= Name=x Ended",
        "Slurm Job_id=12",
        "Slurm Job_id=99999999999 Name=x Ended",
    ],
)
def test_other_subjects_are_not_understood(subject: str) -> None:
    assert None is parse_subject(subject)


@given(st.text())
def test_any_job_name_leaves_job_and_event_alone(name: str) -> None:
    assert MailSubject("12", has_ended=False) == parse_subject(
        f"Slurm Job_id=12 Name={name} Began, Queued time 00:00:01"
    )


def test_whole_array_is_known_as_such() -> None:
    assert ("12", "") == (MailSubject("12_*", has_ended=True).array, MailSubject("12_3", has_ended=True).array)


class _Clock:
    """Let time pass only while sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def test_accounting_is_polled_until_the_job_has_ended() -> None:
    clock, answers = _Clock(), iter([None, RUNNING, PARTIAL, ENDED])

    assert ENDED == wait_for_end(lambda: next(answers), 30.0, clock=lambda: clock.now, sleep=clock.sleep)
    assert 6.0 == clock.now


def test_report_is_made_again_when_the_last_scrape_is_there() -> None:
    # The first one was made 100 s after the end.
    later = replace(ENDED, made_seconds=ENDED.made_seconds + 30)
    clock, answers = _Clock(), iter([RUNNING, ENDED, later])

    made = wait_for_end(lambda: next(answers), 30.0, settle_seconds=130.0, clock=lambda: clock.now, sleep=clock.sleep)

    assert (later, 2.0 + 30.0) == (made, clock.now)


def test_report_made_after_the_last_scrape_is_sent_at_once() -> None:
    clock, answers = _Clock(), iter([ENDED])

    wait_for_end(lambda: next(answers), 30.0, settle_seconds=100.0, clock=lambda: clock.now, sleep=clock.sleep)

    assert 0.0 == clock.now


def test_report_that_cannot_be_made_again_is_sent_as_it_is() -> None:
    clock, answers = _Clock(), iter([ENDED, None])

    # A clock that is behind does not wait for longer than a scrape takes.
    assert ENDED == wait_for_end(
        lambda: next(answers), 30.0, settle_seconds=1000.0, clock=lambda: clock.now, sleep=clock.sleep
    )
    assert 900.0 == clock.now


@pytest.mark.parametrize("answer", [None, RUNNING, PARTIAL])
def test_waiting_for_the_end_has_an_end(answer: JobReport | None) -> None:
    clock = _Clock()

    assert answer is wait_for_end(lambda: answer, 5.0, clock=lambda: clock.now, sleep=clock.sleep)
    assert 5.0 == clock.now


def test_without_a_wait_accounting_is_queried_once() -> None:
    answers = iter([RUNNING])

    assert RUNNING == wait_for_end(lambda: next(answers), 0.0)
