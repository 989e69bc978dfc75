# SPDX-License-Identifier: Apache-2.0
"""Hold what became of the advice that a run got: whether the next run followed it, and what that saved.

A suggestion counts as followed when the request moved at least half of the way to it: people choose round figures.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set
from dataclasses import dataclass

from slurmscope.core.units import parse_bytes, parse_time_limit
from slurmscope.jobs.header_options import parse_suggestion
from slurmscope.jobs.suggestions import count_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """What a run requested and how it ended; None is unknown, and as a time limit unlimited."""

    shown_id: str
    state: str
    submit_seconds: int
    run_seconds: float
    nodes: int
    cpus: int | None
    gpus: int
    memory_bytes: float | None
    time_limit_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What a run reserved less than the advised one; None where the advice is not about it, or it is unknown.

    Negative where the run reserved more, because it took longer.
    """

    core_seconds: float | None = None
    gpu_seconds: float | None = None
    memory_byte_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceOutcome:
    """One finding of an earlier run, and what the later run of the same name made of it."""

    rule: str
    suggestion: str
    earlier: ComparedRun
    later: ComparedRun
    is_followed: bool | None
    """None where the suggestion cannot be compared with a request."""
    is_gone: bool | None
    """Whether the later run no longer has the finding; None where it was too short to judge."""
    is_first: bool
    """False for further runs after the one that followed the advice."""
    savings: Savings


class AdviceGroup(enum.StrEnum):
    """What totals of advice are grouped by."""

    RULE = "rule"
    USER = "user"
    MONTH = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceTotal:
    """Totals of outcomes; ``key`` is a rule, a user, or a month as YYYY-MM. A whole array counts once."""

    key: str
    advised: int
    """Runs with a finding that were followed by another run of the same name."""
    followed: int
    ignored: int
    gone: int
    completed: int
    """Advised runs that had failed, and whose next run followed the advice and completed."""
    saving_runs: int
    """Runs with a smaller request because of the advice, further runs and all tasks of arrays included."""
    saved_core_seconds: float
    saved_gpu_seconds: float
    saved_memory_byte_seconds: float

    @property
    def followed_ratio(self) -> float | None:
        """Return the followed share of the suggestions that could be compared."""
        compared = self.followed + self.ignored
        return self.followed / compared if compared else None


COMMON_NAMES = frozenset({"", "wrap", "bash", "sh", "zsh", "interactive", "sbatch", "allocation", "python", "test"})
"""Names that jobs get by default, or that say nothing: two such jobs are not runs of the same work."""

CORES, GPUS, MEMORY, NODES, TIME = "cpus", "gpus", "memory_bytes", "nodes", "time_limit_seconds"
_MIN_PART = 0.5
_WHOLE_CORE_OPTIONS = ("cpus-per-task", "ntasks")
"""Rules suggest either only where it alone sets all cores."""


def is_followed(suggestion: str, earlier: ComparedRun, later: ComparedRun) -> bool | None:
    """Return whether a request follows a suggestion to an earlier run; None where they cannot be compared."""
    verdicts = [
        _moved(before, target, getattr(later, name))
        for name, target in find_targets(suggestion, earlier).items()
        if (before := getattr(earlier, name)) and before != target
    ]
    known = [verdict for verdict in verdicts if verdict is not None]
    return all(known) if known else None


def find_targets(suggestion: str, earlier: ComparedRun) -> Mapping[str, float]:
    """Return what a suggestion requests in all, by fields of ``ComparedRun``; nothing where it cannot be parsed."""
    options = parse_suggestion(suggestion)
    try:
        return _parse_targets(options, earlier)
    except ValueError:
        return {}


def compute_savings(earlier: ComparedRun, later: ComparedRun, names: Set[str]) -> Savings:
    """Return how much less the later run reserved of these resources.

    The earlier request is charged with the shorter of both run times, so that a smaller problem does not count as
    saved, and a run that got slower by its smaller request is charged with all of its time. Only completed runs are
    compared.
    """
    if earlier.state != "COMPLETED" or later.state != "COMPLETED":
        return Savings()
    shared_seconds = min(earlier.run_seconds, later.run_seconds)

    def save(name: str) -> float | None:
        before, after = getattr(earlier, name), getattr(later, name)
        if name not in names or not before or after is None:
            return None
        return float(before * shared_seconds - after * later.run_seconds)

    return Savings(core_seconds=save(CORES), gpu_seconds=save(GPUS), memory_byte_seconds=save(MEMORY))


def find_resources(suggestion: str, earlier: ComparedRun) -> frozenset[str]:
    """Return the resources of which a suggestion requests less: fewer nodes mean less of everything."""
    targets = find_targets(suggestion, earlier)
    lowered = frozenset(
        name for name, target in targets.items() if (before := getattr(earlier, name)) and target < before
    )
    return lowered | {CORES, GPUS, MEMORY} if NODES in lowered else lowered


def _parse_targets(options: Mapping[str, str], earlier: ComparedRun) -> dict[str, float]:
    targets: dict[str, float] = {}
    if "nodes" in options:
        targets[NODES] = int(options["nodes"])
    else:
        cores = next((int(options[name]) for name in _WHOLE_CORE_OPTIONS if name in options), None)
        targets |= {} if cores is None else {CORES: cores}
    if (gpus := count_gpus(options)) is not None:
        targets[GPUS] = gpus
    if "mem" in options:
        targets[MEMORY] = parse_bytes(options["mem"], default_unit="M") * targets.get(NODES, max(1, earlier.nodes))
    elif "mem-per-gpu" in options and (held := targets.get(GPUS, earlier.gpus)):
        targets[MEMORY] = parse_bytes(options["mem-per-gpu"], default_unit="M") * held
    elif "mem-per-cpu" in options and (count := targets.get(CORES, earlier.cpus or 0)):
        targets[MEMORY] = parse_bytes(options["mem-per-cpu"], default_unit="M") * count
    if "time" in options:
        targets[TIME] = parse_time_limit(options["time"])
    return targets


def _moved(before: float, target: float, after: float | None) -> bool | None:
    """Return whether a request moved to a target by half of the way or more; None where it is unknown."""
    if not after:
        return None
    return (after - before) / (target - before) >= _MIN_PART
