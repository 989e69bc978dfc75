# SPDX-License-Identifier: Apache-2.0
"""Compute the ``#SBATCH`` lines that rules suggest.

Every suggested amount comes from :func:`suggest_memory_bytes` or :func:`suggest_time_seconds`: the need plus a margin,
rounded up to a figure people would write. A smaller amount is suggested only where it :func:`is_worthwhile`.

A line uses the options that the job used. Slurm takes memory per node (``--mem``) or per core (``--mem-per-cpu``), not
both. Where memory is per core, or the site's default gives so much per core, fewer cores mean less memory: such a line
sets both.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from slurmscope.core.units import GIB, MIB, format_bytes, format_some, parse_time_limit
from slurmscope.jobs.memory_shares import counted_ratio, even_need_bytes, requests_memory_per_core
from slurmscope.jobs.rule import (
    exceeded_bytes,
    hit_step_limit,
    is_memory_measured,
    memory_peak_bytes,
    needed_node_bytes,
    requested_cores,
    requested_node_bytes,
    step_cores,
    step_node_bytes,
    step_nodes,
    step_requests,
    step_tasks,
    was_oom_killed,
)
from slurmscope.jobs.summary import JobSummary

MEMORY_MARGIN = 1.2
"""A fifth more than was needed: peaks differ from run to run."""
OOM_MARGIN = 2.0
"""Twice as much as an OOM-killed job had: its real need is unknown."""
GROWN_MARGIN = 1.5
"""An OOM-killed job whose memory grew steadily gets its extrapolated need, and at least half as much again."""
TIME_MARGIN = 1.5
MIN_GAIN_RATIO = 0.2
"""Suggest a smaller request only where it is smaller by this share: less makes no difference to anyone."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

_MEMORY_FLOOR_BYTES = 512 * MIB
# Up to each bound, amounts are rounded up to whole steps; above the last one, to the last step.
_MEMORY_BOUNDS = (4 * GIB, 32 * GIB, 128 * GIB, 512 * GIB)
_MEMORY_STEPS = (256 * MIB, GIB, 4 * GIB, 16 * GIB, 64 * GIB)
_TIME_BOUNDS = (_HOUR, 8 * _HOUR, 2 * _DAY)
_TIME_STEPS = (10 * _MINUTE, 30 * _MINUTE, _HOUR, 6 * _HOUR)
_MAX_SHARE_STEP_BYTES = 64 * MIB
_SHARE_STEPS = 4
"""Memory of a core or GPU is rounded up by at most this part of it: many cores would multiply more."""

GPU_OPTIONS = ("gpus", "gpus-per-node", "gres")
_TIED_TO_GPUS = frozenset({"gpus-per-task", "gpus-per-socket", "ntasks-per-gpu", "tres-per-task", "cpus-per-gpu"})
_COUNT = re.compile("[0-9]{1,9}")
_GPU_COUNT = re.compile("([^,]*[:=]|)([0-9]{1,9})")
_GPU_GRES = re.compile("(?:gres[/:])?gpu(?:[:=]|$)")
_CORE_OPTIONS = ("cpus-per-task", "ntasks", "ntasks-per-node")


def suggest_memory_bytes(needed_bytes: float, margin: float = MEMORY_MARGIN) -> int:
    """Return the memory to request for this need: with a margin, rounded up."""
    return _round_up(max(needed_bytes * margin, _MEMORY_FLOOR_BYTES), _MEMORY_BOUNDS, _MEMORY_STEPS)


def suggest_after_oom_bytes(summary: JobSummary) -> int | None:
    """Return the memory per node for the next run of an OOM-killed job; None where more does not help, or is unknown.

    Never below what the run is known to have needed, or would have needed by its time limit: more than its node has
    would be killed again.
    """
    requested, expected = requested_node_bytes(summary), summary.memory.expected_bytes
    known = max(expected or 0.0, exceeded_bytes(summary) or 0.0)
    if not requested or hit_step_limit(summary) or known > (largest_node_bytes(summary) or math.inf):
        return None
    size = max(
        suggest_memory_bytes(requested, GROWN_MARGIN if known else OOM_MARGIN),
        suggest_memory_bytes(max(known, even_need_bytes(summary) or needed_node_bytes(summary))),
    )
    fitting = fit_node(summary, size)
    return fitting if fitting > requested else None


def fit_node(summary: JobSummary, size_bytes: int) -> int:
    """Return this amount of memory, or that of the smallest node of the job where it has less."""
    return min(size_bytes, largest_node_bytes(summary) or size_bytes)


def largest_node_bytes(summary: JobSummary) -> int | None:
    """Return the most memory that can be requested on each node, in whole MiB; None where it is unknown."""
    size = summary.node_memory_bytes
    return int(size) // MIB * MIB if size else None


def least_limit_seconds(summary: JobSummary) -> int:
    """Return the shortest time limit that Slurm accepts with the other options of a job; 0 where any is."""
    return _limit_option_seconds(summary, "time-min")


SHORTENED_ADVICE = (
    "Slurm shortened its time limit, as --time-min allows, to start it sooner: raise --time-min to what the job needs, "
    "or leave it out."
)


def shortened_limit_seconds(summary: JobSummary) -> int:
    """Return the time limit that a job requested, where Slurm may start it with a shorter one; else 0."""
    return _limit_option_seconds(summary, "time") if "time-min" in summary.record.options else 0


def _limit_option_seconds(summary: JobSummary, option: str) -> int:
    try:
        # Slurm takes whole minutes: one of 90 seconds is two of them.
        return -(-parse_time_limit(summary.record.options.get(option, "")) // _MINUTE) * _MINUTE
    except ValueError:
        return 0


def suggest_time_seconds(needed_seconds: float, margin: float = TIME_MARGIN) -> int:
    """Return the time limit to request for this run time: with a margin, rounded up."""
    return _round_up(max(needed_seconds * margin, _MINUTE), _TIME_BOUNDS, _TIME_STEPS)


def _round_up(amount: float, bounds: Sequence[int], steps: Sequence[int]) -> int:
    step = steps[bisect_left(bounds, amount)]
    return math.ceil(amount / step) * step


def is_worthwhile(requested: float, enough: float) -> bool:
    """Return whether a smaller request is small enough to be suggested."""
    return enough <= (1 - MIN_GAIN_RATIO) * requested


def memory_per_core_bytes(size_bytes: float, cores: float) -> int:
    """Divide memory among cores, rounded up to a figure people would write."""
    each = math.ceil(size_bytes / (cores * MIB))
    step = min(_MAX_SHARE_STEP_BYTES // MIB, 1 << max(0, (each // _SHARE_STEPS).bit_length() - 1))
    return -(-each // step) * step * MIB


def divide_memory_bytes(summary: JobSummary, size_bytes: int, shares: float) -> int:
    """Divide the memory of a node among cores or GPUs, rounded up to more than it had only where it has to be.

    It is never more than the node has.
    """
    each, largest = memory_per_core_bytes(size_bytes, shares), largest_node_bytes(summary)
    if each * shares > (requested_node_bytes(summary) or math.inf) >= size_bytes:
        each = math.ceil(size_bytes / (shares * MIB)) * MIB
    return int(largest / shares) // MIB * MIB if largest and each * shares > largest >= size_bytes else each


def memory_line(size_bytes: int, option: str = "mem") -> str:
    return f"#SBATCH {_memory_option(size_bytes, option)}"


def time_line(seconds: int) -> str:
    """Return the line that requests this time limit."""
    return f"#SBATCH --time={format_time_limit(seconds)}"


def format_time_limit(seconds: int) -> str:
    """Return a time limit as Slurm takes it: days-hours:minutes:seconds."""
    days = f"{seconds // _DAY}-" if seconds >= _DAY else ""
    return f"{days}{seconds % _DAY // _HOUR:02}:{seconds % _HOUR // _MINUTE:02}:00"


def memory_line_for(summary: JobSummary, size_bytes: int, cores: float | None) -> str:
    """Return the line that requests memory on a node with so many of the allocated cores.

    Empty where it depends on unknown cores, or would change nothing.
    """
    option = _memory_option_for(summary, size_bytes, cores and cores * counted_ratio(summary))
    name, _, text = option.removeprefix("--").partition("=")
    return f"#SBATCH {option}" if option and summary.record.options.get(name) != text else ""


def fewer_cores_line(summary: JobSummary, cores: int) -> str:
    """Return the line that requests fewer cores on one node, with their memory; empty where the option is unknown."""
    option = _cores_option(summary, cores)
    if not option:
        return ""
    size = _memory_with_fewer_cores_bytes(summary, cores)
    memory = "" if size is None else f" {_memory_option_for(summary, size, cores)}"
    # Slurm 22.05 allocates cores for this many tasks, however few --ntasks are.
    is_repeated = option == "ntasks" and "ntasks-per-node" in summary.record.options
    return f"#SBATCH --{option}={cores}{f' --ntasks-per-node={cores}' if is_repeated else ''}{memory}"


def fewer_cores_sentence(summary: JobSummary, cores: int) -> str:
    """Return what :func:`fewer_cores_line` requests as a sentence, where it cannot be written as a line."""
    if _cores_option(summary, cores):
        return ""
    size = _memory_with_fewer_cores_bytes(summary, cores)
    memory = "" if size is None else f" with {format_bytes(size)} of memory"
    return f" {format_some(cores, 'core')} in all{memory} would have been enough."


def submitted_tasks(summary: JobSummary) -> int | None:
    """Return how many tasks the options of a job start; None where its script may say so, and is not known."""
    options = summary.record.options
    if "ntasks" in options:
        return _count(options["ntasks"])
    each = _count(options.get("ntasks-per-node", ""))
    return each and each * summary.record.node_count


def _count(text: str) -> int | None:
    return (int(text) or None) if _COUNT.fullmatch(text) else None


def may_have_nodes(summary: JobSummary, nodes: int) -> bool:
    """Return whether a job may request so few nodes: sbatch rejects fewer than it lists, and no step would start."""
    return nodes >= step_nodes(summary) and not summary.record.options.keys() & {"nodelist", "nodefile"}


def fewer_nodes_line(summary: JobSummary, nodes: int) -> str:
    """Return the line that requests all tasks and memory on fewer nodes; empty where the script may divide them.

    Without a number of tasks, Slurm starts one on each node: there would be fewer of them.
    """
    record, requested, tasks = summary.record, summary.memory.requested_bytes, submitted_tasks(summary)
    options = record.options
    if "nodes" not in options or tasks is None or not may_have_nodes(summary, nodes):
        return ""
    line = f"#SBATCH --nodes={nodes}"
    if "ntasks-per-node" in options:
        if tasks % nodes:
            return ""
        line += f" --ntasks-per-node={tasks // nodes}"
    # The default of a site may be an amount for each node.
    if "mem-per-cpu" not in options and requested:
        line += f" {_memory_option(math.ceil(requested / nodes))}"
    return line


def fewer_gpus_line(summary: JobSummary, count: int) -> str:
    """Return the line that requests fewer GPUs of a job on one node, by the option that it used, with their memory.

    Empty where that is unknown, since a second option would contradict the one in the script, where GPUs of several
    models were requested, where their number depends on tasks, or that of cores on them, or where a step requests more
    itself.
    """
    typed = summary.record.options
    parts = {name: part for name in GPU_OPTIONS if (part := _gpu_part(name, typed.get(name, "")))}
    name, part = parts.popitem() if len(parts) == 1 else ("", "")
    found = _GPU_COUNT.fullmatch(part)
    if not found or typed.keys() & _TIED_TO_GPUS or count < _step_gpus(summary) or not _fits_gpus(summary, count):
        return ""
    memory = _memory_with_fewer_gpus(summary, count)
    return f"#SBATCH --{name}={typed[name].replace(part, f'{found[1]}{count}')}{memory and f' {memory}'}"


def _fits_gpus(summary: JobSummary, count: int) -> bool:
    """Return whether what the job held in all of its GPUs fits into fewer, as far as that is known."""
    held, size, had = summary.gpu.peak_memory_bytes, summary.gpu.memory_size_bytes, summary.record.gpus
    return held is None or not size or not had or held <= size / had * count


def _memory_with_fewer_gpus(summary: JobSummary, count: int) -> str:
    """Return the option for the memory to request with fewer GPUs; empty where the job keeps enough without it."""
    requested, had = summary.memory.requested_bytes, summary.record.gpus
    if not requested or not had or summary.record.options.keys() & {"mem", "mem-per-cpu"}:
        return ""
    size = _memory_to_keep_bytes(summary, requested)
    if size <= requested * count / had:
        return ""
    is_per_gpu = "mem-per-gpu" in summary.record.options
    return _memory_option(memory_per_core_bytes(size, count), "mem-per-gpu") if is_per_gpu else _memory_option(size)


def _step_gpus(summary: JobSummary) -> int:
    """Return the most GPUs of a node that a step requested itself: it would not start with fewer."""
    return max((_gpus_of_step(request, tasks) for request, tasks in step_requests(summary)), default=0)


def _gpus_of_step(request: Mapping[str, str], tasks: int) -> int:
    each = _GPU_COUNT.fullmatch(request.get("gpus-per-task", ""))
    return max(count_gpus(request) or 0, int(each[2]) * tasks if each else 0)


def count_gpus(options: Mapping[str, str]) -> int | None:
    """Return how many GPUs of a job on one node a suggested line requests; None where it is about others."""
    parts = (_GPU_COUNT.fullmatch(_gpu_part(name, options.get(name, ""))) for name in GPU_OPTIONS)
    return next((int(found[2]) for found in parts if found), None)


def _gpu_part(option: str, value: str) -> str:
    """Return what of an option requests GPUs: ``--gres`` may also request others."""
    if option != "gres":
        return value
    return ",".join(part for part in value.split(",") if _GPU_GRES.match(part))


def _memory_option(size_bytes: int, option: str = "mem") -> str:
    # Slurm takes whole numbers only.
    text = f"{size_bytes // GIB}G" if size_bytes % GIB == 0 else f"{math.ceil(size_bytes / MIB)}M"
    return f"--{option}={text}"


def _memory_option_for(summary: JobSummary, size_bytes: int, cores: float | None) -> str:
    if "mem-per-gpu" in summary.record.options:
        gpus = summary.record.gpus / max(1, summary.record.node_count)
        return _memory_option(divide_memory_bytes(summary, size_bytes, gpus), "mem-per-gpu") if gpus else ""
    if not requests_memory_per_core(summary):
        return _memory_option(size_bytes)
    return _memory_option(divide_memory_bytes(summary, size_bytes, cores), "mem-per-cpu") if cores else ""


def _cores_option(summary: JobSummary, cores: int) -> str:
    """Return the option to lower: the one that alone sets all cores, by the submit line or else by the steps.

    None for a job with a step that requests more cores itself: it would not start.

    A job without steps may have started its tasks with mpirun: unless the submit line has their number, it is unknown.
    """
    record, tasks = summary.record, step_tasks(summary)
    options = record.options
    if options.keys() & {"exclusive", "mincpus"} or cores < step_cores(summary):
        return ""
    if named := [option for option in _CORE_OPTIONS if option in options]:
        amounts = {str(record.cpus), str(requested_cores(summary))}
        option = next((option for option in named if options[option] in amounts), "")
        return "" if option == "cpus-per-task" and tasks not in {None, 1} else option
    # Steps of one task that ran side by side were one of the job's tasks each.
    if tasks == 1 and summary.memory.slurm_peak_is_whole:
        return "cpus-per-task"
    return ""


def _memory_with_fewer_cores_bytes(summary: JobSummary, cores: int) -> int | None:
    """Return the memory to request with fewer cores; None where the job keeps enough without that."""
    requested = summary.memory.requested_bytes
    if not requested or summary.record.options.keys() & {"mem", "mem-per-gpu"}:
        return None
    size = _memory_to_keep_bytes(summary, requested)
    is_enough = size <= requested * cores / max(cores, summary.record.cpus or cores)
    return None if is_enough and not requests_memory_per_core(summary) else size


def _memory_to_keep_bytes(summary: JobSummary, requested_bytes: float) -> int:
    if was_oom_killed(summary):
        return suggest_after_oom_bytes(summary) or int(requested_bytes)
    peak = memory_peak_bytes(summary.memory)
    if peak is None or not is_memory_measured(summary.memory):
        return int(requested_bytes)
    # A smallest amount must not raise what was enough.
    size = min(suggest_memory_bytes(peak), int(max(requested_bytes, peak * MEMORY_MARGIN)))
    size = max(size, step_node_bytes(summary))
    # A job that did not reach its end may need more.
    return fit_node(summary, size if summary.record.state == "COMPLETED" else max(size, int(requested_bytes)))
