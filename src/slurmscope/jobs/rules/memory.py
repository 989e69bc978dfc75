# SPDX-License-Identifier: Apache-2.0
"""Check how a job used its memory."""

from __future__ import annotations

from slurmscope.core.units import GIB, format_bytes, format_count, format_ratio, format_seconds
from slurmscope.jobs.memory_shares import (
    counted_by_node,
    counted_cores,
    counted_ratio,
    may_lower_memory,
    requests_memory_per_core,
    spread_ratio,
)
from slurmscope.jobs.rule import (
    SETTLED_STATES,
    STEP_LIMIT_ADVICE,
    Match,
    Rule,
    Severity,
    Subject,
    Threshold,
    Thresholds,
    exceeded_bytes,
    hit_step_limit,
    is_memory_measured,
    memory_peak_bytes,
    needed_node_bytes,
    requested_node_bytes,
    step_node_bytes,
    was_oom_killed,
)
from slurmscope.jobs.suggestions import (
    fit_node,
    is_worthwhile,
    largest_node_bytes,
    memory_line,
    memory_line_for,
    memory_per_core_bytes,
    suggest_after_oom_bytes,
    suggest_memory_bytes,
)
from slurmscope.jobs.summary import JobSummary

MIN_GROWTH_RATIO = 1.3
CRITICAL_USED_RATIO, RISKY_USED_RATIO = 0.1, 0.5
"""It is critical to use less of the request, and a risk to grow beyond the second share of it."""
LITTLE_BYTES = float(GIB)
"""Less memory than this is not worth a finding."""
MIN_TMPFS_RATIO = 0.3
"""Shared memory is mentioned from this share of the needed memory on."""

_UNMEASURED_ADVICE = (
    "Request less only step by step, and watch the job: a request below its real peak would get it OOM-killed."
)
_UNFINISHED_ADVICE = "The run did not reach its end, and may need more by then: watch the memory of a complete one."
_UNEVEN_ADVICE = (
    "Memory is requested per node, and one node needed most of it. Divide the data more evenly between the nodes, then "
    "request less."
)


def _over_requested(summary: JobSummary, values: Thresholds) -> Match | None:
    requested, peak = summary.memory.requested_bytes, memory_peak_bytes(summary.memory)
    if not requested or peak is None or summary.record.state not in SETTLED_STATES or was_oom_killed(summary):
        return None
    # No other job gets the memory of whole nodes.
    if summary.record.options.get("exclusive") == "":
        return None
    is_default = requested <= values["free_bytes_per_core"] * (summary.record.cpus or 0)
    if is_default or peak >= values["min_used_ratio"] * requested or requested - peak < values["min_unused_bytes"]:
        return None
    numbers = {"requested_bytes": requested, "peak_bytes": peak, "used_ratio": peak / requested}
    if not is_memory_measured(summary.memory):
        return Match(
            explanation=f"The job requested {format_bytes(requested)} of memory. Slurm saw at most "
            f"{format_bytes(peak)} in use ({format_ratio(peak / requested)}), but it samples rarely and misses peaks.",
            numbers=numbers,
            severity=Severity.INFO,
            advice=_UNMEASURED_ADVICE,
        )
    suggest = _less_per_core if requests_memory_per_core(summary) else _less_per_node
    is_complete = summary.record.state == "COMPLETED"
    suggestion = suggest(summary, requested, peak) if is_complete and may_lower_memory(summary) else ""
    uneven = "" if suggestion or summary.record.node_count < 2 else _UNEVEN_ADVICE
    return Match(
        explanation=f"The job requested {format_bytes(requested)} of memory and needed at most {format_bytes(peak)} "
        f"({format_ratio(peak / requested)}). Other jobs could not use the rest.",
        numbers=numbers,
        suggestion=suggestion,
        advice=uneven if is_complete else _UNFINISHED_ADVICE,
        severity=Severity.CRITICAL if peak < CRITICAL_USED_RATIO * requested else None,
    )


def _less_per_node(summary: JobSummary, requested: float, peak: float) -> str:
    """Suggest the need of the node with the highest: ``--mem`` is per node."""
    count = max(1, summary.record.node_count)
    size = max(suggest_memory_bytes(max(needed for needed, _ in _needs(summary, peak))), step_node_bytes(summary))
    return memory_line_for(summary, size, None) if is_worthwhile(requested / count, size) else ""


def _less_per_core(summary: JobSummary, requested: float, peak: float) -> str:
    """Suggest the highest need per core of any node; the number of cores may differ between nodes."""
    least, counted = step_node_bytes(summary), counted_cores(summary)
    sizes = [
        memory_per_core_bytes(max(suggest_memory_bytes(n), least), cores) for n, cores in _needs(summary, peak) if cores
    ]
    if not sizes or len(sizes) < summary.record.node_count or not is_worthwhile(requested, max(sizes) * counted):
        return ""
    return memory_line(max(sizes), "mem-per-cpu")


def _needs(summary: JobSummary, peak: float) -> list[tuple[float, float | None]]:
    """Return the needed memory of each node, and the cores for which it gets memory.

    Slurm's peak was on one of them, unknown which: where it is above all others, each node may need it.
    """
    count, cores = max(1, summary.record.node_count), counted_by_node(summary)
    mean = peak / count
    floor = max(mean, summary.memory.slurm_peak_bytes or mean)
    measured = [(n.working_peak_bytes, cores.get(n.node)) for n in summary.nodes if n.working_peak_bytes is not None]
    if len(measured) < count:
        return [(floor, counted_cores(summary) / count)] * count
    if floor <= max(needed for needed, _ in measured):
        return measured
    return [(floor, each) for _, each in measured]


def _near_limit(summary: JobSummary, values: Thresholds) -> Match | None:
    if was_oom_killed(summary) or not summary.memory.coverage.is_good:
        return None
    worst = max(
        (
            (node.working_peak_bytes / limit, node.working_peak_bytes, limit, node.node)
            for node in summary.nodes
            if node.working_peak_bytes is not None and (limit := node.limit_bytes or requested_node_bytes(summary))
        ),
        default=None,
    )
    if worst is None or worst[0] < values["min_used_ratio"]:
        return None
    ratio, peak, limit, node = worst
    cores = counted_by_node(summary).get(node, 0.0) / counted_ratio(summary)
    size = fit_node(summary, suggest_memory_bytes(peak))
    # Nodes with fewer cores than others have less than the mean.
    is_even = spread_ratio(summary) == 1
    is_more = size > ((is_even and requested_node_bytes(summary)) or limit)
    return Match(
        explanation=f"On {node} the job needed {format_bytes(peak)} of its limit of {format_bytes(limit)} "
        f"({format_ratio(ratio)}). Slightly more, and it is OOM-killed.{_growth_sentence(summary)}"
        f"{_tmpfs_sentence(summary)}",
        numbers={"peak_bytes": peak, "limit_bytes": limit, "used_ratio": ratio},
        suggestion=memory_line_for(summary, size, cores) if is_more else "",
        advice="" if is_more else _full_node(summary.node_memory_bytes),
    )


def _oom_kill(summary: JobSummary, _values: Thresholds) -> Match | None:
    if not was_oom_killed(summary):
        return None
    requested, kills = requested_node_bytes(summary), summary.memory.oom_kills
    if (exceeded := exceeded_bytes(summary)) is not None and not kills and requested:
        return _exceeded(summary, exceeded, requested)
    count = f" ({kills:,} times)" if kills and kills > 1 else ""
    ended = " The job completed all the same: its results may be incomplete."
    had = f" It had {format_bytes(requested)} per node." if requested else ""
    if requested and spread_ratio(summary) != 1:
        had = f" It had {format_bytes(summary.memory.requested_bytes)} on all nodes together."
    is_step = hit_step_limit(summary)
    in_all = f" The job as a whole used at most {format_bytes(needed_node_bytes(summary))} of it."
    which = "a step exceeded its own memory limit" if is_step else "the job exceeded its memory limit"
    return Match(
        explanation=f"The kernel killed a process because {which}{count}.{had}"
        f"{in_all if is_step else _need_sentence(summary)}{_tmpfs_sentence(summary)}"
        f"{ended if summary.record.state == 'COMPLETED' else ''}",
        numbers={"oom_kills": float(kills)} if kills is not None else {},
        suggestion=_more(summary),
        advice=STEP_LIMIT_ADVICE if is_step else "",
    )


def _exceeded(summary: JobSummary, exceeded: float, requested: float) -> Match:
    """Explain a job that was killed above its request; unlike after an OOM kill, what it used is known."""
    return Match(
        explanation=f"The job was killed while it used more memory than it had requested: {format_bytes(exceeded)} of "
        f"{format_bytes(requested)} per node ({format_ratio(exceeded / requested)}).",
        numbers={"peak_bytes": exceeded, "requested_bytes": requested, "used_ratio": exceeded / requested},
        suggestion=_more(summary),
    )


def _tmpfs_sentence(summary: JobSummary) -> str:
    """Say where much of the memory is in files: deleting them, or writing them to disk, frees it."""
    shared, count = summary.memory.shared_peak_bytes or 0.0, max(1, summary.record.node_count)
    if shared / count < MIN_TMPFS_RATIO * needed_node_bytes(summary) or not shared:
        return ""
    return f" {format_bytes(shared)} were shared memory or files in tmpfs, such as /dev/shm, which count as memory."


def _more(summary: JobSummary) -> str:
    size, count = suggest_after_oom_bytes(summary), max(1, summary.record.node_count)
    return "" if size is None else memory_line_for(summary, size, (summary.record.cpus or 0) / count)


def _need_sentence(summary: JobSummary) -> str:
    """Say what the job would have needed, or that this is unknown."""
    expected, requested, size = summary.memory.expected_bytes, requested_node_bytes(summary), summary.node_memory_bytes
    if expected is None:
        text = f"{_growth_sentence(summary)} How much it needs is not known: the next run should get twice as much."
    else:
        text = (
            " Its memory still grew: at the rate of the second half of its run it would have needed "
            f"{format_bytes(expected)} per node by its time limit of {format_seconds(summary.time.requested)}."
        )
    if requested and size and suggest_after_oom_bytes(summary) in {None, largest_node_bytes(summary)}:
        text += f" {_full_node(size)}"
    return text


def _full_node(size_bytes: float | None) -> str:
    return f"A node has {format_bytes(size_bytes)}: use nodes with more memory, or divide the work between more nodes."


def _growth_sentence(summary: JobSummary) -> str:
    """Say that memory grew to the end, beside a finding that replaces the one about growth."""
    growth = summary.memory.growth_ratio
    if growth is None or growth < MIN_GROWTH_RATIO:
        return ""
    return f" Its memory grew until the end, to {format_count(growth)} times that of the middle of the run."


def _growing(summary: JobSummary, values: Thresholds) -> Match | None:
    memory = summary.memory
    growth, peak = memory.growth_ratio, memory.working_peak_bytes
    if growth is None or peak is None or not memory.coverage.is_good:
        return None
    if growth < values["min_growth_ratio"] or peak < LITTLE_BYTES:
        return None
    is_risky = memory.requested_bytes is not None and peak >= RISKY_USED_RATIO * memory.requested_bytes
    when = "At its end the job used" if summary.record.has_ended else "The job now uses"
    return Match(
        explanation=f"{when} {format_count(growth)} times as much memory as in the middle of its run. "
        f"The peak was {format_bytes(peak)}.",
        numbers={"growth_ratio": growth, "peak_bytes": peak},
        severity=Severity.WARNING if is_risky else None,
    )


def _thrashing(summary: JobSummary, values: Thresholds) -> Match | None:
    rates = summary.memory.refaults_per_second
    swapped, read = rates.get("anon", 0.0), rates.get("file", 0.0)
    if swapped + read < values["min_pages_per_second"] or not summary.coverage.is_good:
        return None
    is_swap = swapped >= values["min_pages_per_second"]
    what = "fetched its memory back from swap" if is_swap else "read files again that the kernel had just dropped"
    return Match(
        explanation=f"On one node the job {what}, {format_count(swapped if is_swap else read)} pages per second on "
        "average: what it works on does not fit into its memory.",
        numbers={"swapped_pages_per_second": swapped, "file_pages_per_second": read},
        severity=None if is_swap else Severity.INFO,
    )


RULES = (
    Rule(
        id="memory_over_requested",
        title="Much of the requested memory was not needed",
        subject=Subject.MEMORY,
        severity=Severity.WARNING,
        needs="memory on every node; for a note, Slurm's MaxRSS of a job with one task at a time; the job has ended",
        advice="Request a fifth more than the job's peak. Jobs with less memory start sooner.",
        check=_over_requested,
        thresholds=(
            # Older tools mean to warn below 90 %. The margin of a fifth that we suggest would then be too much.
            Threshold("min_used_ratio", "ratio", 0.5, "Report jobs that needed less than this share of the request."),
            Threshold("min_unused_bytes", "bytes", LITTLE_BYTES, "Ignore less unused memory."),
            Threshold(
                "free_bytes_per_core",
                "bytes",
                float(GIB),
                "Memory per core that is allowed without a finding; set it to the default of your site.",
            ),
        ),
    ),
    Rule(
        id="memory_near_limit",
        title="The memory was nearly exhausted",
        subject=Subject.MEMORY,
        severity=Severity.WARNING,
        needs="memory on every node",
        advice="Request more memory for the next run, especially if its input is larger.",
        check=_near_limit,
        min_run_seconds=0.0,
        thresholds=(
            Threshold("min_used_ratio", "ratio", 0.95, "Report jobs that needed this share of their limit or more."),
        ),
        replaces=("memory_growing",),
    ),
    Rule(
        id="oom_kill",
        title="OOM-killed: the job ran out of memory",
        subject=Subject.MEMORY,
        severity=Severity.CRITICAL,
        needs="the job's state, the kernel's count of OOM kills, or a killed job that used more than it requested",
        advice="Request more memory, or reduce what the program needs: smaller input, fewer processes at once.",
        check=_oom_kill,
        min_run_seconds=0.0,
        replaces=("memory_over_requested", "memory_near_limit", "memory_growing"),
    ),
    Rule(
        id="memory_growing",
        title="Memory grew until the end",
        subject=Subject.MEMORY,
        severity=Severity.INFO,
        needs="memory on every node throughout the run",
        advice="Unless the program accumulates data on purpose, it may leak memory. A longer run would need more.",
        check=_growing,
        min_run_seconds=1800.0,
        thresholds=(
            Threshold(
                "min_growth_ratio",
                "ratio",
                MIN_GROWTH_RATIO,
                "Report jobs whose memory in the last tenth of the run is this many times that of the middle.",
            ),
        ),
    ),
    Rule(
        id="memory_thrashing",
        title="The memory was too small for what the job works on",
        subject=Subject.MEMORY,
        severity=Severity.WARNING,
        needs="pages that were reclaimed and read again (Linux 5.9)",
        advice="Request more memory, or work on less data at once: reading everything again costs more than the rest.",
        check=_thrashing,
        thresholds=(
            Threshold(
                "min_pages_per_second", "count", 1000.0, "Ignore jobs that read fewer pages again, on each node."
            ),
        ),
    ),
)
