# SPDX-License-Identifier: Apache-2.0
"""Write PromQL expressions, with every external text quoted by one function.

The expressions work in Prometheus since 2.33 and in VictoriaMetrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from slurmscope.jobs.series import JOB_LABEL, Aggregation, DerivedLabel, JobSpan, SeriesQuery

Matchers = tuple[tuple[str, str], ...]
"""Labels and the values that they must have."""

# Growth instead of a rate: it is the same in the first seconds of a job, when only a part of the window is filled.
_FUNCTIONS = {
    Aggregation.RATE: "increase",
    Aggregation.MEAN: "avg_over_time",
    Aggregation.MAX: "max_over_time",
    Aggregation.TOTAL: "last_over_time",
}
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_REGEX_CHARACTERS = re.compile(r"[\\.+*?()|\[\]{}^$]")
_AFTER_JOB = "(?::.*)?"
_NOT_PLAIN = re.compile(r"[^ !#-\[\]-~]")


def quote(text: str) -> str:
    """Return any text as a PromQL string literal.

    All but plain ASCII is escaped by code point: Prometheus 2.42 takes U+FFFD itself for invalid UTF-8. Half of a
    surrogate pair occurs in no label; it becomes U+FFFD too.
    """
    return '"' + _NOT_PLAIN.sub(lambda found: _escape(found[0]), text) + '"'


def quote_regex(values: Iterable[str]) -> str:
    """Return an anchored pattern, as a string literal, that matches these values and no others."""
    return quote("|".join(_REGEX_CHARACTERS.sub(r"\\\g<0>", value) for value in values))


def curves_expression(
    wanted: SeriesQuery, job_ids: Sequence[int], *, window_seconds: float, matchers: Matchers = ()
) -> str:
    """Return an expression for one metric of several jobs, to be evaluated at each step of a range.

    The value of a rate is the growth within the window. Where a counter lost a part of its value there is none: the
    server would take the loss for a start from 0, and add the rest as growth.
    """
    samples = f"{_selector(wanted, job_ids, matchers)}{_window(window_seconds)}"
    value = f"{_FUNCTIONS[wanted.how]}({samples})"
    return _grouped(wanted, f"{value} unless resets({samples}) > 0" if wanted.may_fall else value)


def totals_expression(wanted: SeriesQuery, spans: Sequence[JobSpan], *, matchers: Matchers = ()) -> str:
    """Return an expression for one value per series of several jobs, each over exactly its own span.

    Two runs of one job must not be in one query: the answer does not distinguish them. For a total, the value is the
    highest sample, negated where the counter fell: then the highest sample is not yet the total.
    """
    samples = [_samples(wanted, span, matchers) for span in spans]
    if wanted.how is not Aggregation.TOTAL:
        return _grouped(wanted, _applied(_FUNCTIONS[wanted.how], samples))
    if set(wanted.each) != set(wanted.by):
        raise ValueError("totals cannot be summed by the server: counters that fell need a correction first")
    # Of two copies of a series, the higher one is not always the one that contains the fall.
    highest, resets = (_grouped(wanted, _applied(function, samples)) for function in ("max_over_time", "resets"))
    return f"{highest} * (1 - 2 * ({resets} > bool 0))"


def _samples(wanted: SeriesQuery, span: JobSpan, matchers: Matchers) -> str:
    window = _window(span.end_seconds - span.start_seconds)
    return f"{_selector(wanted, (span.job_id,), matchers)}{window} @ {span.end_seconds:.3f}"


def _applied(function: str, samples: Iterable[str]) -> str:
    return _joined([f"{function}({of_job})" for of_job in samples])


def _window(seconds: float) -> str:
    return f"[{max(1, round(seconds * 1000))}ms]"


def _selector(wanted: SeriesQuery, job_ids: Sequence[int], matchers: Matchers) -> str:
    values = [str(job_id) for job_id in job_ids]
    if wanted.is_foreign:
        jobs = "=~" + quote(f"(?:{'|'.join(values)}){_AFTER_JOB}")
    else:
        jobs = f"={quote(values[0])}" if len(values) == 1 else f"=~{quote_regex(values)}"
    others = [f"{_checked(_LABEL, label)}={quote(value)}" for label, value in (*wanted.where, *matchers)]
    others += [f"{_checked(_LABEL, label)}=~{quote_regex(values)}" for label, values in wanted.among]
    return f"{_checked(_METRIC, wanted.metric)}{{{','.join([_checked(_LABEL, wanted.job_label) + jobs, *others])}}}"


def _grouped(wanted: SeriesQuery, inner: str) -> str:
    """Take the higher of two copies of a series, then sum over the labels that are not kept."""
    for label in (*_job_labels(wanted), *wanted.derived):
        names = (_checked(_LABEL, label.name), _checked(_LABEL, label.source))
        inner = f"label_replace({inner}, {quote(names[0])}, {quote('$1')}, {quote(names[1])}, {quote(label.pattern)})"
    each = f"max by ({_labels(wanted.each)}) ({inner})"
    if set(wanted.each) == set(wanted.by):
        return each
    return f"sum by ({_labels(wanted.by)}) ({each})"


def _job_labels(wanted: SeriesQuery) -> tuple[DerivedLabel, ...]:
    if wanted.job_label == JOB_LABEL:
        return ()
    return (DerivedLabel(JOB_LABEL, wanted.job_label, f"([0-9]+){_AFTER_JOB if wanted.is_foreign else ''}"),)


def _labels(names: Sequence[str]) -> str:
    return ", ".join([JOB_LABEL, *(_checked(_LABEL, name) for name in names)])


def _joined(terms: Sequence[str]) -> str:
    """Join as a tree: in a chain, the server would process the first job's series once for every other job."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return f"({_joined(terms[:middle])} or {_joined(terms[middle:])})"


def _escape(char: str) -> str:
    number = ord(char)
    if char in '\\"':
        return f"\\{char}"
    if 0xD800 <= number <= 0xDFFF:
        number = 0xFFFD
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def _checked(pattern: re.Pattern[str], name: str) -> str:
    if not pattern.match(name):
        raise ValueError(f"{name!r} is not a valid metric or label name")
    return name
