# SPDX-License-Identifier: Apache-2.0
"""Answer questions about the past of jobs out of a Prometheus.

A point of a curve stands for the window that ends at its time; the last one lies at the end of the run. A requeued job
has the same number in all its runs. So where windows are long, the ends of a run are asked for by themselves, over
exactly their time: of all other points, none reaches into another run, and no peak near the start or the end is lost.

What a server refuses as too much at once is asked again in halves, down to a floor; what is then still missing makes
the answer partial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from slurmscope.model.series import JOB_LABEL, Aggregation, Curves, JobSpan, Series, SeriesQuery, Totals, total_of_rises
from slurmscope.sources.prometheus.answers import FoundSeries, Reply, TooMuchAsked
from slurmscope.sources.prometheus.curves import CurvesByJob, add_curve, cut_curve, first_parts, last_parts, make_point
from slurmscope.sources.prometheus.plan import MAX_JOBS, CurvesQuestion, TotalsQuestion, plan_curves, plan_totals
from slurmscope.sources.prometheus.promql import curves_query, totals_query
from slurmscope.sources.prometheus.query_counters import QueryCounters
from slurmscope.sources.prometheus.settings import PrometheusSettings

CURVES_KIND = "curves"
TOTALS_KIND = "totals"

_MAX_SPLITS = 64
"""How often one reading may put a question again in halves; beyond that it is partial."""
# VictoriaMetrics takes questions of up to 16 KiB.
_MAX_QUERY_BYTES = 12_000
_RISE_POINTS = 300
"""At how many points a counter that fell is looked at."""

Question = TypeVar("Question", CurvesQuestion, TotalsQuestion)


class Client(Protocol):
    """Evaluate expressions; see ``sources.prometheus``."""

    @property
    def ledger(self) -> QueryCounters:
        """Return where questions are counted."""

    def ask_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply:
        """Evaluate at one time."""

    def ask_range(
        self, query: str, times: tuple[float, float], step_seconds: float, *, kind: str, until: float
    ) -> Reply:
        """Evaluate at the first time and every step up to the last."""


class PrometheusSeries:
    """Answer for many jobs at once; any thread may ask. Two runs of one job need two readings."""

    def __init__(self, client: Client, settings: PrometheusSettings) -> None:
        """Take what asks the server, and how often it scrapes."""
        self._client = client
        self._settings = settings

    @property
    def questions_at_once(self) -> int:
        """Return how many queries the client sends at the same time."""
        return max(1, self._settings.max_questions)

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return curves of at most so many points each."""
        spans = _check(spans)
        by_job: CurvesByJob = {}
        max_points, scrape_seconds = self._settings.max_points, self._settings.scrape_interval
        plan = list(plan_curves(spans, wanted.how, points=points, max_points=max_points, scrape_seconds=scrape_seconds))
        answers = _Answers(self._client.ledger, CURVES_KIND)
        for question, reply in answers.of(plan, lambda question: self._ask_curves(wanted, question, until)):
            for span, labels, found in _sorted_out(reply, question.spans, wanted):
                add_curve(by_job, span, cut_curve(found, span, question, wanted.how, labels))
        for parts in (first_parts(plan, wanted.how), last_parts(plan)):
            for (part, labels), value in self._read_parts(wanted, parts, answers, until):
                add_curve(by_job, part, Series(labels, (part.end_seconds,), (make_point(wanted.how, part, value),)))
        return Curves({job: tuple(curves.values()) for job, curves in by_job.items()}, answers.is_partial)

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> Totals:
        """Return one number per series, over the whole span of each job."""
        spans = _check(spans)
        if not spans:
            return Totals()
        jobs, scrape_seconds = self._jobs_at_once(wanted, spans), self._settings.scrape_interval
        plan = plan_totals(spans, wanted.how, jobs=jobs, scrape_seconds=scrape_seconds)
        pieces: dict[int, dict[tuple[str, ...], list[_Piece]]] = {}
        answers = _Answers(self._client.ledger, TOTALS_KIND)
        for question, reply in answers.of(
            plan, lambda question: self._ask_totals(wanted, question, TOTALS_KIND, until)
        ):
            for (span, labels), value in _highest(_sorted_out(reply, question.spans, wanted)).items():
                piece = _Piece(value, span.end_seconds - span.start_seconds)
                pieces.setdefault(span.job_id, {}).setdefault(labels, []).append(piece)
        run_seconds = {span.job_id: span.end_seconds - span.start_seconds for span in spans}
        by_job = {
            job: {labels: _total(wanted.how, values, run_seconds[job]) for labels, values in series.items()}
            for job, series in pieces.items()
        }
        if wanted.how is Aggregation.TOTAL:
            return self._with_rises(wanted, spans, Totals(by_job, answers.is_partial), until)
        return Totals(by_job, answers.is_partial)

    def _with_rises(self, wanted: SeriesQuery, spans: Sequence[JobSpan], totals: Totals, until: float) -> Totals:
        """Look at the whole course of those counters that fell: that is rare, and costs two or three more questions.

        What a counter grew within the step of its fall is not seen; so the total is a little too low, never too high.
        """
        fallen = [span for span in spans if min(totals.by_job.get(span.job_id, {}).values(), default=0.0) < 0]
        curves = self.read_curves(wanted, fallen, points=_RISE_POINTS, until=until)
        by_job = {job: {labels: abs(value) for labels, value in told.items()} for job, told in totals.by_job.items()}
        for job, courses in curves.by_job.items():
            told = totals.by_job[job]
            for course in courses:
                if told.get(course.labels, 0.0) < 0:
                    by_job[job][course.labels] = max(by_job[job][course.labels], total_of_rises(course.values))
        return Totals(by_job, totals.is_partial or curves.is_partial)

    def _read_parts(
        self, wanted: SeriesQuery, parts: Sequence[JobSpan], answers: _Answers, until: float
    ) -> Iterator[tuple[tuple[JobSpan, tuple[str, ...]], float]]:
        """Fold the samples of each part; one of each job."""
        jobs = self._jobs_at_once(wanted, parts) if parts else 1
        plan = (
            TotalsQuestion(spans=tuple(parts[begin : begin + jobs]), least_seconds=math.inf)
            for begin in range(0, len(parts), jobs)
        )
        for question, reply in answers.of(
            plan, lambda question: self._ask_totals(wanted, question, CURVES_KIND, until)
        ):
            yield from _highest(_sorted_out(reply, question.spans, wanted)).items()

    def _jobs_at_once(self, wanted: SeriesQuery, spans: Sequence[JobSpan]) -> int:
        return max(1, min(MAX_JOBS, _MAX_QUERY_BYTES // len(self._totals_query(wanted, spans[:1]))))

    def _ask_curves(self, wanted: SeriesQuery, question: CurvesQuestion, until: float) -> Reply:
        job_ids = [span.job_id for span in question.spans]
        matchers, window = self._settings.matchers, question.window_seconds
        query = curves_query(wanted, job_ids, window_seconds=window, matchers=matchers)
        times = (question.first_seconds, question.last_seconds)
        return self._client.ask_range(query, times, question.step_seconds, kind=CURVES_KIND, until=until)

    def _ask_totals(self, wanted: SeriesQuery, question: TotalsQuestion, kind: str, until: float) -> Reply:
        query = self._totals_query(wanted, question.spans)
        at_seconds = max(span.end_seconds for span in question.spans)
        return self._client.ask_instant(query, at_seconds, kind=kind, until=until)

    def _totals_query(self, wanted: SeriesQuery, spans: Sequence[JobSpan]) -> str:
        return totals_query(wanted, spans, matchers=self._settings.matchers)


class _Answers:
    """Put questions, in halves where they are too much, and keep in mind whether something was left out."""

    def __init__(self, ledger: QueryCounters, kind: str) -> None:
        self.is_partial = False
        self._ledger = ledger
        self._kind = kind
        self._splits_left = _MAX_SPLITS

    def of(self, plan: Iterable[Question], ask: Callable[[Question], Reply]) -> Iterator[tuple[Question, Reply]]:
        for planned in plan:
            waiting = [planned]
            while waiting:
                question = waiting.pop()
                try:
                    reply = ask(question)
                except TooMuchAsked:
                    waiting.extend(reversed(self._halves(question)))
                    continue
                self.is_partial |= reply.is_partial
                yield question, reply

    def _halves(self, question: Question) -> tuple[Question, ...]:
        halves = question.split() if self._splits_left else ()
        if not halves:
            self.is_partial = True
            return ()
        self._splits_left -= 1
        self._ledger.note_split(self._kind)
        return halves


@dataclass(frozen=True, slots=True)
class _Piece:
    """Hold the number of a part of a run, and how long that part is."""

    value: float
    seconds: float


def _check(spans: Sequence[JobSpan]) -> list[JobSpan]:
    """Leave out what did not last; refuse what an answer could not tell apart."""
    lasting = [span for span in spans if span.end_seconds > span.start_seconds]
    if len({span.job_id for span in lasting}) != len(lasting):
        raise ValueError("two runs of one job cannot be read together: an answer is by job number")
    return lasting


def _sorted_out(
    reply: Reply, spans: Sequence[JobSpan], wanted: SeriesQuery
) -> Iterator[tuple[JobSpan, tuple[str, ...], FoundSeries]]:
    """Give each series to its run; what nobody asked for is left out."""
    by_label = {str(span.job_id): span for span in spans}
    for found in reply.series:
        span = by_label.get(found.labels.get(JOB_LABEL, ""))
        if span is not None:
            yield span, tuple(found.labels.get(name, "") for name in wanted.by), found


def _highest(
    series: Iterable[tuple[JobSpan, tuple[str, ...], FoundSeries]],
) -> Mapping[tuple[JobSpan, tuple[str, ...]], float]:
    highest: dict[tuple[JobSpan, tuple[str, ...]], float] = {}
    for span, labels, found in series:
        for value in found.values:
            highest[span, labels] = max(value, highest.get((span, labels), value))
    return highest


def _total(how: Aggregation, pieces: Sequence[_Piece], run_seconds: float) -> float:
    """Make one number of the parts of a run: mostly there is one part only."""
    if how is Aggregation.MAX:
        return max(piece.value for piece in pieces)
    if how is Aggregation.TOTAL:
        highest = max(abs(piece.value) for piece in pieces)
        return -highest if any(piece.value < 0 for piece in pieces) else highest
    if how is Aggregation.RATE:
        return sum(piece.value for piece in pieces) / run_seconds
    return sum(piece.value * piece.seconds for piece in pieces) / sum(piece.seconds for piece in pieces)
