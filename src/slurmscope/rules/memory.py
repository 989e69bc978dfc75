# SPDX-License-Identifier: Apache-2.0
"""Judge how a job used its memory."""

from __future__ import annotations

from slurmscope.figures import format_bytes, format_count, format_ratio
from slurmscope.model.finding import Severity, Subject
from slurmscope.model.summary import JobSummary
from slurmscope.rules.known import SETTLED_STATES, memory_peak_bytes, was_oom_killed
from slurmscope.rules.rule import Match, Rule, Threshold, Thresholds, min_run
from slurmscope.rules.suggestions import (
    OOM_MARGIN,
    memory_line,
    memory_line_for,
    memory_per_core_bytes,
    requests_memory_per_core,
    suggest_memory_bytes,
)

_GIB = float(1 << 30)


def _over_asked(summary: JobSummary, values: Thresholds) -> Match | None:
    asked, peak = summary.memory.asked_bytes, memory_peak_bytes(summary.memory)
    if not asked or peak is None or summary.run_seconds < values["min_run_seconds"]:
        return None
    if summary.record.state not in SETTLED_STATES or was_oom_killed(summary):
        return None
    is_usual = asked <= values["free_bytes_per_core"] * summary.record.cpus
    if is_usual or peak >= values["min_used_ratio"] * asked or asked - peak < values["min_unused_bytes"]:
        return None
    return Match(
        explanation=f"You asked for {format_bytes(asked)} of memory and needed at most {format_bytes(peak)}, "
        f"which is {format_ratio(peak / asked)}. The rest could not be used by anybody.",
        numbers={"asked_bytes": asked, "peak_bytes": peak, "used_ratio": peak / asked},
        suggestion=_less_per_core(summary, asked, peak)
        if requests_memory_per_core(summary)
        else _less_per_node(summary, asked, peak),
        severity=Severity.CRITICAL if peak < values["critical_used_ratio"] * asked else None,
    )


def _less_per_node(summary: JobSummary, asked: float, peak: float) -> str:
    """Suggest what the neediest node needs, as ``--mem`` is per node."""
    count = max(1, summary.record.node_count)
    size = suggest_memory_bytes(max(needed for needed, _ in _needs(summary, peak)))
    return memory_line(size) if size < asked / count else ""


def _less_per_core(summary: JobSummary, asked: float, peak: float) -> str:
    """Suggest what the cores of the neediest node need each; nodes may have given different numbers of cores."""
    sizes = [memory_per_core_bytes(suggest_memory_bytes(n), cpus) for n, cpus in _needs(summary, peak) if cpus]
    if len(sizes) < max(1, summary.record.node_count) or max(sizes) * summary.record.cpus >= asked:
        return ""
    return memory_line(max(sizes), "mem-per-cpu")


def _needs(summary: JobSummary, peak: float) -> list[tuple[float, float | None]]:
    """Return memory and cores of each node.

    The peak that Slurm saw was on one of them, nobody knows which: where it is above all others, each may need it.
    """
    count, floor = max(1, summary.record.node_count), summary.memory.slurm_peak_bytes or 0.0
    told = [(n.working_peak_bytes, n.cpus) for n in summary.nodes if n.working_peak_bytes is not None]
    if len(told) < count:
        return [(max(peak / count, floor), summary.record.cpus / count)] * count
    if floor <= max(needed for needed, _ in told):
        return told
    return [(floor, cpus) for _, cpus in told]


def _near_limit(summary: JobSummary, values: Thresholds) -> Match | None:
    if was_oom_killed(summary) or not summary.memory.coverage.is_good:
        return None
    worst = max(
        (
            (node.working_peak_bytes / limit, node.working_peak_bytes, limit, node.node, node.cpus or 0.0)
            for node in summary.nodes
            if node.working_peak_bytes is not None and (limit := node.limit_bytes or _asked_per_node(summary))
        ),
        default=None,
    )
    if worst is None or worst[0] < values["min_used_ratio"]:
        return None
    ratio, peak, limit, node, cpus = worst
    return Match(
        explanation=f"On {node} the job needed {format_bytes(peak)} of the {format_bytes(limit)} that it may have "
        f"({format_ratio(ratio)}). A little more, and it is killed.",
        numbers={"peak_bytes": peak, "limit_bytes": limit, "used_ratio": ratio},
        suggestion=memory_line_for(summary, suggest_memory_bytes(peak), cpus),
    )


def _asked_per_node(summary: JobSummary) -> float | None:
    asked, count = summary.memory.asked_bytes, summary.record.node_count
    return asked / count if asked and count else None


def _oom_kill(summary: JobSummary, _values: Thresholds) -> Match | None:
    if not was_oom_killed(summary):
        return None
    asked, kills = _asked_per_node(summary), summary.memory.oom_kills
    more = suggest_memory_bytes(asked, OOM_MARGIN) if asked else None
    count = f" ({kills:,} times)" if kills and kills > 1 else ""
    ended = "" if summary.record.state == "OUT_OF_MEMORY" else " The job went on: its results may be incomplete."
    had = f" It had {format_bytes(asked)} on each node." if asked else ""
    return Match(
        explanation=f"The kernel killed a process because the job needed more memory than it may have{count}."
        f"{had}{ended}",
        numbers={"oom_kills": float(kills)} if kills is not None else {},
        suggestion=memory_line_for(summary, more, summary.record.cpus / summary.record.node_count) if more else "",
    )


def _growing(summary: JobSummary, values: Thresholds) -> Match | None:
    growth, memory = summary.memory.growth_ratio, summary.memory
    if growth is None or not memory.coverage.is_good or summary.run_seconds < values["min_run_seconds"]:
        return None
    peak = memory.working_peak_bytes or 0.0
    if growth < values["min_growth_ratio"] or peak < values["min_peak_bytes"]:
        return None
    is_threat = memory.asked_bytes is not None and peak >= values["warning_used_ratio"] * memory.asked_bytes
    when = "At the end the job held" if summary.record.has_ended else "By now the job holds"
    return Match(
        explanation=f"{when} {format_count(growth)} times as much memory as in the middle of its run. "
        f"The peak was {format_bytes(peak)}.",
        numbers={"growth_ratio": growth, "peak_bytes": peak},
        severity=Severity.WARNING if is_threat else None,
    )


RULES = (
    Rule(
        id="memory_over_asked",
        title="Much of the memory was not needed",
        subject=Subject.MEMORY,
        severity=Severity.WARNING,
        needs="memory on every node, or Slurm's MaxRSS of a job with one task at a time; the job has ended",
        advice="Ask for a fifth more than the job needs at its peak. Jobs with less memory start sooner.",
        check=_over_asked,
        thresholds=(
            # Older tools mean to warn below 90 %. The reserve of a fifth that we advise would then be too much.
            Threshold(name="min_used_ratio", unit="ratio", default=0.5, help="Below this too much was asked for."),
            Threshold(name="critical_used_ratio", unit="ratio", default=0.1, help="Below this it is critical."),
            Threshold(name="min_unused_bytes", unit="bytes", default=_GIB, help="Less than this is not worth a word."),
            Threshold(
                name="free_bytes_per_core", unit="bytes", default=_GIB,
                help="Up to so much for each core nobody is blamed; set it to the default of your site.",
            ),
            min_run(),
        ),
    ),
    Rule(
        id="memory_near_limit",
        title="The memory was nearly used up",
        subject=Subject.MEMORY,
        severity=Severity.WARNING,
        needs="memory on every node",
        advice="Ask for some more memory before the next run, above all if its input is larger.",
        check=_near_limit,
        thresholds=(
            Threshold(name="min_used_ratio", unit="ratio", default=0.95, help="From this share of the limit on."),
        ),
    ),
    Rule(
        id="oom_kill",
        title="Killed for want of memory",
        subject=Subject.MEMORY,
        severity=Severity.CRITICAL,
        needs="the job's state, or the kernel's count of kills",
        advice="Ask for more memory, or make the program need less: smaller pieces of input, fewer processes at once.",
        check=_oom_kill,
        replaces=("memory_over_asked", "memory_near_limit"),
    ),
    Rule(
        id="memory_growing",
        title="Memory grew until the end",
        subject=Subject.MEMORY,
        severity=Severity.INFO,
        needs="memory on every node over the run",
        advice="If the program does not collect data on purpose, it may leak memory. A longer run would need more.",
        check=_growing,
        thresholds=(
            Threshold(
                name="min_growth_ratio", unit="ratio", default=1.3,
                help="Memory in the last tenth of the run over that of its middle.",
            ),
            Threshold(name="min_peak_bytes", unit="bytes", default=_GIB, help="Smaller jobs are not judged."),
            Threshold(
                name="warning_used_ratio", unit="ratio", default=0.5,
                help="From this share of what was asked for it is a warning.",
            ),
            min_run(1800.0),
        ),
    ),
)  # fmt: skip
