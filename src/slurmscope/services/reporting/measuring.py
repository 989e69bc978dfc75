# SPDX-License-Identifier: Apache-2.0
"""Ask a source of time series everything that reports of jobs need, each question once for all jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from slurmscope.analysis.wanted import CURVES, TOTALS
from slurmscope.errors import ServerBusy, ServerRefused, ServerTimedOut, SourceError
from slurmscope.model.job_record import JobRecord
from slurmscope.model.report import MAX_CHART_POINTS
from slurmscope.model.series import Curves, JobSpan, Measured, Series, SeriesSource, Totals

MAX_CORES_DRAWN = 128
"""Jobs with more cores have the total of each core, and no curve for each."""

CORE_CURVE = "cpu_core"

Measured_T = TypeVar("Measured_T", Curves, Totals)


UNREACHABLE = (ServerRefused, ServerTimedOut)
"""A server that does not answer one question will not answer the next one either."""

MAY_PASS = (*UNREACHABLE, ServerBusy)
"""What is worth waiting for: the same question may have an answer later."""


@dataclass(slots=True)
class Answers:
    """Gather what was measured, by job, while one question after the other is asked."""

    curves: dict[str, Mapping[int, tuple[Series, ...]]] = field(default_factory=dict)
    totals: dict[str, Mapping[int, Mapping[tuple[str, ...], float]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    busy: ServerBusy | None = None
    """What the server said where it had no answer for now."""

    def of(self, job_id: int) -> Measured:
        """Return what is known of one job."""
        return Measured(
            curves={name: found[job_id] for name, found in self.curves.items() if job_id in found},
            totals={name: found[job_id] for name, found in self.totals.items() if job_id in found},
            problems=tuple(self.problems),
        )

    def note(self, sentence: str) -> None:
        """Remember a problem once."""
        if sentence not in self.problems:
            self.problems.append(sentence)


def measure(series: SeriesSource, records: Sequence[JobRecord], *, now_seconds: float, until: float) -> Answers:
    """Ask everything about jobs with different numbers; what fails is a sentence among the problems.

    Raises one of :data:`UNREACHABLE` when the server does not answer at all.
    """
    answers = Answers()
    spans = {record.job_id: span for record in records if (span := span_of(record, now_seconds))}
    small = [spans[record.job_id] for record in records if record.job_id in spans and record.cpus <= MAX_CORES_DRAWN]
    everything = tuple(spans.values())
    questions = [
        partial(_ask_totals, answers, name, partial(series.read_totals, wanted, everything, until=until))
        for name, wanted in TOTALS.items()
        if everything
    ]
    for name, wanted in CURVES.items():
        if asked := small if name == CORE_CURVE else everything:
            ask = partial(series.read_curves, wanted, asked, points=MAX_CHART_POINTS, until=until)
            questions.append(partial(_ask_curves, answers, name, ask))
    _ask_all(questions, series.questions_at_once)
    return answers


def _ask_all(questions: Sequence[Callable[[], None]], at_once: int) -> None:
    """Ask the first question alone, to see whether anybody answers, and the others so many at a time."""
    for question in questions[:1]:
        question()
    with ThreadPoolExecutor(at_once) as pool:
        asked = [pool.submit(question) for question in questions[1:]]
        try:
            for future in asked:
                future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _ask_totals(answers: Answers, name: str, ask: Callable[[], Totals]) -> None:
    if totals := _ask(answers, ask):
        answers.totals[name] = totals.by_job


def _ask_curves(answers: Answers, name: str, ask: Callable[[], Curves]) -> None:
    if curves := _ask(answers, ask):
        answers.curves[name] = curves.by_job


def _ask(answers: Answers, ask: Callable[[], Measured_T]) -> Measured_T | None:
    try:
        answer = ask()
    except UNREACHABLE:
        raise
    except SourceError as error:
        if isinstance(error, ServerBusy):
            answers.busy = error
        answers.note(str(error))
        return None
    if answer.is_partial:
        answers.note("The server of the time series left something out, so some curves may be incomplete.")
    return answer


def span_of(record: JobRecord, now_seconds: float) -> JobSpan | None:
    """Return when a job ran; None when it did not."""
    if record.start_seconds is None:
        return None
    end = now_seconds if record.end_seconds is None else record.end_seconds
    return JobSpan(record.job_id, record.start_seconds, end) if end > record.start_seconds else None
