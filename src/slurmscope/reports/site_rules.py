# SPDX-License-Identifier: Apache-2.0
"""Take the rules and sections of a site's extensions, so that a failure affects one finding or table only."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import cast

from slurmscope.core.check import Check
from slurmscope.core.log import fields
from slurmscope.exporter.extensions import check_extension, load_extension
from slurmscope.jobs.findings import RULES, make_finding
from slurmscope.jobs.report import ReportSection, SiteSection
from slurmscope.jobs.rule import Match, Rule, Severity, Subject, Thresholds
from slurmscope.jobs.summary import JobSummary

logger = logging.getLogger(__name__)


def site_rules(extensions: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules of the named extensions; one with the ID of another rule is left out."""
    found: dict[str, Rule] = {}
    for name, rule in _declared(extensions):
        if _is_taken(rule.id, found):
            logger.error("rule exists already", extra=fields(rule.id, extension=name, rule=rule.id))
        elif problem := _problem_of(rule):
            logger.error("rule cannot be used", extra=fields(rule.id, extension=name, rule=rule.id, error=problem))
        else:
            found[rule.id] = _guarded(rule, name)
    return tuple(found.values())


def check_site_rules(extensions: Sequence[str]) -> Iterator[Check]:
    """Report each named extension, and the rules and sections that it adds."""
    for name in extensions:
        extension = load_extension(name)
        declared = extension.declared("RULES", Rule)
        rules = [rule.id for rule in declared]
        sections = [section.id for section in extension.declared("SECTIONS", ReportSection)]
        clash = ", ".join(rule for rule in rules if _is_taken(rule, ()))
        wrong = "; ".join(f"rule {rule.id}: {problem}" for rule in declared if (problem := _problem_of(rule)))
        problem = extension.problem or (f"declares rules that exist already: {clash}" if clash else wrong)
        parts = (*(f"rule {rule}" for rule in rules), *(f"section {section}" for section in sections))
        yield check_extension(extension, problem, parts)


def _declared(names: Iterable[str]) -> Iterator[tuple[str, Rule]]:
    for name in names:
        yield from ((name, rule) for rule in load_extension(name).declared("RULES", Rule))


def _is_taken(rule_id: str, others: Iterable[str]) -> bool:
    return rule_id in others or any(rule.id == rule_id for rule in RULES)


def _problem_of(rule: Rule) -> str:
    """Return what is wrong in a declaration; it would fail with every job."""
    try:
        numbers = {each.name: each.default for each in rule.thresholds}
        _require_finding(
            rule, Match(explanation="", numbers={"min_run_seconds": rule.min_run_seconds or 0.0, **numbers})
        )
    except (AttributeError, TypeError, ValueError) as error:
        return str(error)
    return ""


def _require_finding(rule: Rule, match: object) -> None:
    """Raise TypeError or ValueError for what cannot be shown or archived as a finding."""
    if not isinstance(match, Match):
        raise TypeError(f"check returned {type(match).__name__}, neither a Match nor None")
    finding = make_finding(rule, match, {})
    texts: tuple[object, ...] = (
        finding.title,
        finding.explanation,
        finding.advice,
        finding.suggestion,
        *finding.numbers,
    )
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("title, explanation, advice, suggestion and names of numbers must be texts")
    # A text that is equal to a member does not have its attributes.
    severity, subject = cast("object", finding.severity), cast("object", finding.subject)
    if not isinstance(severity, Severity) or not isinstance(subject, Subject):
        raise TypeError("severity and subject must be members of Severity and Subject")
    if not all(math.isfinite(number) for number in finding.numbers.values()):
        raise ValueError("numbers must be finite")


def _guarded(rule: Rule, extension: str) -> Rule:
    """Return the rule with a check that finds nothing where it fails, and says so once."""
    has_failed = False

    def check(summary: JobSummary, values: Thresholds) -> Match | None:
        nonlocal has_failed
        try:
            match = rule.check(summary, values)
            if match is not None:
                _require_finding(rule, match)
        except Exception:
            if not has_failed:
                logger.exception("rule failed", extra=fields(rule.id, extension=extension, rule=rule.id))
            has_failed = True
            return None
        return match

    return replace(rule, check=check)


MAX_ROWS = 200
MAX_CELL = 200

MakeSection = Callable[[JobSummary], SiteSection | None]


def site_sections(extensions: Sequence[str]) -> Callable[[JobSummary], tuple[SiteSection, ...]]:
    """Return the function that makes the sections of the named extensions for a job; the first of each ID is used."""
    declared = (
        (name, each) for name in extensions for each in load_extension(name).declared("SECTIONS", ReportSection)
    )
    found: dict[str, MakeSection] = {}
    for name, section in declared:
        found.setdefault(str(section.id), _guarded_section(section, name))

    def make(summary: JobSummary) -> tuple[SiteSection, ...]:
        return tuple(made for each in found.values() if (made := each(summary)) is not None)

    return make


def _guarded_section(section: ReportSection, extension: str) -> MakeSection:
    """Return a function that makes a section; it makes none where that fails or there are no rows."""
    has_failed = False

    def make(summary: JobSummary) -> SiteSection | None:
        nonlocal has_failed
        try:
            head = _check_row(section.head, section.head)
            rows = tuple(_check_row(row, head) for row in islice(section.make(summary), MAX_ROWS))
            return SiteSection(id=str(section.id), title=str(section.title), head=head, rows=rows) if rows else None
        except Exception:
            if not has_failed:
                extra = fields(section.id, extension=extension, section=section.id)
                logger.exception("section of a report failed", extra=extra)
            has_failed = True
            return None

    return make


def _check_row(row: Sequence[str], head: Sequence[str]) -> tuple[str, ...]:
    """Return a row of short texts: else the report could not be shown or archived."""
    if isinstance(row, str) or not row or len(row) != len(head) or not all(isinstance(cell, str) for cell in row):
        raise ValueError(f"a row must have {len(head)} texts")
    return tuple(cell[:MAX_CELL] for cell in row)
