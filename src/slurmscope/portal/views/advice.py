# SPDX-License-Identifier: Apache-2.0
"""Show two runs of the same name before and after advice, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from slurmscope.figures import format_bytes, format_count, format_seconds
from slurmscope.model.advice import AdviceOutcome, ComparedRun, Savings

_HOUR = 3600.0
_GIB = 1 << 30


class BeforeAfter(NamedTuple):
    """Hold one row of the comparison."""

    label: str
    before: str
    after: str

    @property
    def differs(self) -> bool:
        """Return whether the runs differ in this row."""
        return self.before != self.after


class RunComparison(NamedTuple):
    """Hold an advised run and a later one, with the rules whose advice was followed and was not."""

    earlier: ComparedRun
    later: ComparedRun
    followed: tuple[str, ...]
    ignored: tuple[str, ...]
    saved: str
    rows: tuple[BeforeAfter, ...]


def compare_runs(outcomes: Iterable[AdviceOutcome]) -> tuple[RunComparison, ...]:
    """Return one comparison for each pair of runs with advice that can be judged."""
    pairs: dict[tuple[ComparedRun, ComparedRun], list[AdviceOutcome]] = {}
    for outcome in outcomes:
        if outcome.is_followed is not None:
            pairs.setdefault((outcome.earlier, outcome.later), []).append(outcome)
    return tuple(_compare(earlier, later, found) for (earlier, later), found in pairs.items())


def describe_savings(savings: Iterable[Savings]) -> str:
    """Return what was saved, such as ``12 core-hours and 40 GiB-hours of memory``; empty where nothing is known."""
    found = tuple(savings)
    amounts = (
        (_add(each.core_seconds for each in found), _HOUR, "core-hours"),
        (_add(each.gpu_seconds for each in found), _HOUR, "GPU-hours"),
        (_add(each.memory_byte_seconds for each in found), _HOUR * _GIB, "GiB-hours of memory"),
    )
    texts = [f"{format_count(round(amount / unit, 2))} {name}" for amount, unit, name in amounts if amount]
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def _add(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _compare(earlier: ComparedRun, later: ComparedRun, found: list[AdviceOutcome]) -> RunComparison:
    return RunComparison(
        earlier=earlier,
        later=later,
        followed=tuple(outcome.rule for outcome in found if outcome.is_followed),
        ignored=tuple(outcome.rule for outcome in found if not outcome.is_followed),
        saved=describe_savings(outcome.savings for outcome in found),
        rows=tuple(BeforeAfter(label, read(earlier), read(later)) for label, read in _ROWS),
    )


_ROWS: tuple[tuple[str, Callable[[ComparedRun], str]], ...] = (
    ("State", lambda run: run.state.replace("_", " ").lower()),
    ("Nodes", lambda run: format_count(run.nodes)),
    ("Cores", lambda run: "unknown" if run.cpus is None else format_count(run.cpus)),
    ("GPUs", lambda run: format_count(run.gpus)),
    ("Memory", lambda run: "unknown" if run.memory_bytes is None else format_bytes(run.memory_bytes)),
    ("Time limit", lambda run: "none" if run.time_limit_seconds is None else format_seconds(run.time_limit_seconds)),
    ("Run time", lambda run: format_seconds(run.run_seconds)),
)
