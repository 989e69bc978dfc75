# SPDX-License-Identifier: Apache-2.0
"""Write the options of a corrected header as the job wrote them, and compute the size that they request.

Slurm takes memory per node, per core or per GPU, and GPUs by several options: a line replaces the option that was used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from slurmscope.core.units import parse_bytes, parse_time_limit
from slurmscope.jobs.memory_shares import MEMORY_OPTIONS, counted_cores, counted_ratio, requests_memory_per_core
from slurmscope.jobs.report import FreedResources, JobReport, OptionChange, OtherRun, RequestedSize
from slurmscope.jobs.rule import SETTLED_STATES, Finding
from slurmscope.jobs.suggestions import GPU_OPTIONS, count_gpus, divide_memory_bytes, memory_line, time_line
from slurmscope.jobs.summary import JobSummary

CORE_OPTIONS = ("cpus-per-task", "ntasks", "ntasks-per-node")
_COUNT = re.compile("[1-9][0-9]{0,8}")
_SIZE_OPTIONS = ("nodes", *CORE_OPTIONS, *GPU_OPTIONS)
_SIZE_ORDER = (*_SIZE_OPTIONS, *MEMORY_OPTIONS, "time")


class RequestedAmount(NamedTuple):
    """An amount to request, and why."""

    value: float
    reason: str


class SizeChanges(NamedTuple):
    """Changes of nodes, cores and GPUs, the size with them, and whether the same tasks run on fewer nodes."""

    changes: tuple[OptionChange, ...]
    size: RequestedSize
    is_packed: bool = False


def submitted_size(summary: JobSummary) -> RequestedSize:
    record = summary.record
    return RequestedSize(
        nodes=max(1, record.node_count),
        cpus=record.cpus or 0,
        gpus=record.gpus,
        memory_bytes=summary.memory.requested_bytes or None,
        limit_seconds=summary.time.requested,
    )


def parse_suggestion(suggestion: str) -> dict[str, str]:
    """Return the options of the lines that a finding suggests, by their long names."""
    words = (word[2:].partition("=") for word in suggestion.split() if word.startswith("--"))
    return {name: value for name, _, value in words}


def without_odd_lines(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings without lines that cannot be computed with.

    A rule of the site may say ``--nodes=2-4``, and a finding of another release what this one does not know.
    """
    return tuple(each if _is_computable(each.suggestion) else replace(each, suggestion="") for each in findings)


def _is_computable(suggestion: str) -> bool:
    for name, text in parse_suggestion(suggestion).items():
        try:
            if name in MEMORY_OPTIONS:
                parse_bytes(text)
            elif name == "time":
                parse_time_limit(text)
            elif name in {"nodes", *CORE_OPTIONS} and not _COUNT.fullmatch(text):
                return False
        except ValueError:
            return False
    return True


def sets_size(suggestion: str) -> bool:
    """Return whether a suggested line sets the number of nodes, cores or GPUs."""
    return not parse_suggestion(suggestion).keys().isdisjoint(_SIZE_OPTIONS)


def change_size(report: JobReport, runs: Sequence[OtherRun]) -> SizeChanges:
    """Return fewer nodes, cores or GPUs where a finding suggests them and no other run used more."""
    made = SizeChanges((), submitted_size(report.summary))
    if report.record.state not in SETTLED_STATES:
        return made
    taken: set[str] = set()
    for finding in report.findings:
        options = {name: text for name, text in parse_suggestion(finding.suggestion).items() if name in _SIZE_OPTIONS}
        if not options or taken & options.keys():
            continue
        more = _changed(report.summary, finding, options, made.size)
        if more.changes and _is_enough(more.size, runs):
            taken |= options.keys()
            made = SizeChanges((*made.changes, *more.changes), more.size, made.is_packed or more.is_packed)
    return made


def suggested_bytes(summary: JobSummary, finding: Finding) -> float | None:
    """Return the memory per node that a finding suggests."""
    options, size = parse_suggestion(finding.suggestion), submitted_size(summary)
    if "mem" in options:
        return parse_bytes(options["mem"], default_unit="M")
    if "mem-per-gpu" in options:
        return parse_bytes(options["mem-per-gpu"], default_unit="M") * (count_gpus(options) or size.gpus) / size.nodes
    if "mem-per-cpu" not in options:
        return None
    cores = next((int(options[name]) for name in CORE_OPTIONS if name in options), counted_cores(summary) / size.nodes)
    return parse_bytes(options["mem-per-cpu"], default_unit="M") * cores


def change_memory(summary: JobSummary, memory: RequestedAmount, size: RequestedSize) -> OptionChange | None:
    """Return the change of memory per node; None where it depends on GPUs that are unknown, or nothing changes."""
    options = summary.record.options
    by_default = "mem-per-cpu" if requests_memory_per_core(summary) else "mem"
    option = next((name for name in reversed(MEMORY_OPTIONS) if name in options), by_default)
    bytes_each, submitted = int(memory.value), submitted_size(summary)
    if option != "mem":
        share = _multiplier(summary, option, size) / size.nodes
        if not share:
            return None
        bytes_each = divide_memory_bytes(summary, bytes_each, share)
    after = _value(memory_line(bytes_each, option))
    if options.get(option) == after:
        return None
    has_known = option == "mem" and submitted.memory_bytes is not None
    known = _value(memory_line(int((submitted.memory_bytes or 0) / submitted.nodes))) if has_known else ""
    # With fewer cores, the same amount has to be requested where it came with the cores.
    before = options.get(option) or (known if known != after else "")
    return OptionChange(option=option, submitted=before, suggested=after, reason=memory.reason)


def with_memory(summary: JobSummary, size: RequestedSize, change: OptionChange) -> RequestedSize:
    """Return the size with a change of memory, which Slurm multiplies by nodes, cores or GPUs."""
    count = _multiplier(summary, change.option, size)
    return replace(size, memory_bytes=parse_bytes(change.suggested, default_unit="M") * count)


def _multiplier(summary: JobSummary, option: str, size: RequestedSize) -> float:
    if option == "mem-per-cpu":
        # A line for fewer cores on one node names those that memory is counted for.
        is_named = size.cpus < (summary.record.cpus or 0) and size.nodes == max(1, summary.record.node_count)
        return size.cpus if is_named else size.cpus * counted_ratio(summary)
    return size.nodes if option == "mem" else size.gpus


def change_time(summary: JobSummary, limit: RequestedAmount) -> OptionChange:
    options = summary.record.options
    known = "" if summary.time.requested is None else _value(time_line(int(summary.time.requested)))
    return OptionChange(
        option="time",
        submitted=options.get("time") or known,
        suggested=_value(time_line(int(limit.value))),
        reason=limit.reason,
    )


def in_order(changes: Sequence[OptionChange]) -> tuple[OptionChange, ...]:
    """Sort changes as people write headers: size, memory, time."""
    return tuple(sorted(changes, key=lambda change: _SIZE_ORDER.index(change.option)))


def write_note(summary: JobSummary, changes: Sequence[OptionChange]) -> str:
    """Return what else has to be changed: the command line overrides the script, and memory has three options."""
    record = summary.record
    typed = [f"--{change.option}" for change in changes if change.option in record.typed_options]
    if typed:
        return f"The job was submitted with {', '.join(typed)} on the command line, which overrides these lines."
    if record.script_options is None and any(change.option == "mem" for change in changes):
        return "If the script sets --mem-per-cpu or --mem-per-gpu, remove that line: --mem replaces it."
    return ""


def freed_resources(before: RequestedSize, after: RequestedSize, run_seconds: float) -> FreedResources:
    """Return what a run of this length would leave to others."""
    memory = before.memory_bytes - after.memory_bytes if before.memory_bytes and after.memory_bytes else 0.0
    return FreedResources(
        core_seconds=_freed(before.cpus - after.cpus, run_seconds),
        gpu_seconds=_freed(before.gpus - after.gpus, run_seconds),
        memory_byte_seconds=_freed(memory, run_seconds),
    )


def _freed(fewer: float, run_seconds: float) -> float | None:
    return fewer * run_seconds if fewer > 0 and run_seconds > 0 else None


def _changed(summary: JobSummary, finding: Finding, options: Mapping[str, str], size: RequestedSize) -> SizeChanges:
    """Return the changes of one finding, none where they cannot be written."""
    typed, is_packed = summary.record.options, "enough_nodes" in finding.numbers
    # A number of tasks for all nodes would have to fit on fewer.
    if "nodes" in options and "ntasks" in typed and not is_packed:
        return SizeChanges((), size)
    changes = [
        OptionChange(
            option=name, submitted=typed.get(name) or _known_value(name, size), suggested=text, reason=finding.title
        )
        for name, text in options.items()
    ]
    after = _size_with(options, size, is_packed=is_packed, typed=typed)
    if is_packed and (memory := suggested_bytes(summary, finding)):
        after = replace(after, memory_bytes=memory * after.nodes)
        changes += [
            change for change in [change_memory(summary, RequestedAmount(memory, finding.title), after)] if change
        ]
    return SizeChanges(tuple(changes), after, is_packed)


def _size_with(
    options: Mapping[str, str], size: RequestedSize, *, is_packed: bool, typed: Mapping[str, str]
) -> RequestedSize:
    """Return the size with these options; memory that was requested per core or GPU follows their number."""
    nodes = int(options.get("nodes", size.nodes))
    gpus = count_gpus(options) or size.gpus
    cpus = size.cpus
    if "nodes" not in options:
        cpus = next((int(options[name]) for name in CORE_OPTIONS if name in options), cpus)
    elif not is_packed:
        cpus = math.ceil(cpus * nodes / size.nodes)
    memory = size.memory_bytes
    if memory is not None and "nodes" in options:
        memory = memory if is_packed else memory * nodes / size.nodes
    elif memory is not None and "mem-per-gpu" in typed:
        memory = memory * gpus / size.gpus if size.gpus else memory
    elif memory is not None and "mem-per-cpu" in typed:
        memory = memory * cpus / size.cpus
    elif memory is not None and "mem" not in typed:
        # The default of a site is for each core, or for each GPU.
        memory = memory * min(cpus / size.cpus, gpus / size.gpus if size.gpus else 1.0)
    return RequestedSize(nodes=nodes, cpus=cpus, gpus=gpus, memory_bytes=memory, limit_seconds=size.limit_seconds)


def _known_value(option: str, size: RequestedSize) -> str:
    """Return the value that a job got for an option that is not on its command line."""
    return str(size.nodes if option == "nodes" else size.cpus)


def _is_enough(size: RequestedSize, runs: Sequence[OtherRun]) -> bool:
    """Return whether every other run would have had enough cores and GPUs."""
    has_cores = all(run.mean_cores is None or run.mean_cores <= size.cpus + 0.5 for run in runs)
    return has_cores and all(run.mean_gpus is None or run.mean_gpus <= size.gpus for run in runs)


def _value(line: str) -> str:
    return line.partition("=")[2]
