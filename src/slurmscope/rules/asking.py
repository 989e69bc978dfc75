# SPDX-License-Identifier: Apache-2.0
"""Write lines that ask for cores and memory in the way in which the job asked for them.

Slurm takes memory per node (``--mem``) or per core (``--mem-per-cpu``), not both. Where it is per core, or the site
gives so much for each core, fewer cores mean less memory: such a line has to say both.
"""

from __future__ import annotations

import math

from slurmscope.figures import format_bytes, format_some
from slurmscope.model.summary import JobSummary
from slurmscope.rules.known import (
    SETTLED_STATES,
    asked_cores,
    memory_peak_bytes,
    step_tasks,
    was_killed_for_memory,
)
from slurmscope.rules.submitted import asked_options
from slurmscope.rules.words import OOM_RESERVE, memory_option, memory_to_ask_bytes

_CORE_OPTIONS = ("cpus-per-task", "ntasks", "ntasks-per-node")
_PER_CORE_STEP_BYTES = 64 << 20


def is_asked_per_core(summary: JobSummary) -> bool:
    """Tell whether the job is known to have asked for memory by the core."""
    return "mem-per-cpu" in asked_options(summary.record.submit_line)


def memory_per_core_bytes(size_bytes: float, cores: float) -> int:
    """Divide memory among cores, rounded up."""
    return int(-(-size_bytes // (cores * _PER_CORE_STEP_BYTES))) * _PER_CORE_STEP_BYTES


def memory_line_for(summary: JobSummary, size_bytes: int, cores: float | None) -> str:
    """Ask for memory on a node with so many cores; write nothing where it goes by the core and they are not known."""
    option = _memory_option(summary, size_bytes, cores)
    return f"#SBATCH {option}" if option else ""


def fewer_cores_line(summary: JobSummary, cores: int) -> str:
    """Ask for fewer cores on one node, and for the memory that would go with them; nothing where it is unknown how."""
    option = _cores_option(summary)
    if not option:
        return ""
    size = _memory_beside_bytes(summary, cores)
    memory = "" if size is None else f" {_memory_option(summary, size, cores)}"
    return f"#SBATCH --{option}={cores}{memory}"


def fewer_cores_words(summary: JobSummary, cores: int) -> str:
    """Say in words what :func:`fewer_cores_line` asks for, where it cannot be written as a line."""
    if _cores_option(summary):
        return ""
    size = _memory_beside_bytes(summary, cores)
    memory = "" if size is None else f" with {format_bytes(size)} of memory"
    return f" {format_some(cores, 'core')} in all{memory} would have been enough."


def fewer_nodes_line(summary: JobSummary, nodes: int) -> str:
    """Ask for all tasks and all memory on fewer nodes; nothing where the script may say how they are divided."""
    record, asked = summary.record, summary.memory.asked_bytes
    options = asked_options(record.submit_line)
    if "nodes" not in options:
        return ""
    line = f"#SBATCH --nodes={nodes}"
    tasks = options.get("ntasks-per-node", "")
    if tasks.isdecimal():
        line += f" --ntasks-per-node={math.ceil(int(tasks) * record.node_count / nodes)}"
    if "mem" in options and asked:
        line += f" {memory_option(math.ceil(asked / nodes))}"
    return line


def _memory_option(summary: JobSummary, size_bytes: int, cores: float | None) -> str:
    if not is_asked_per_core(summary):
        return memory_option(size_bytes)
    return memory_option(memory_per_core_bytes(size_bytes, cores), "mem-per-cpu") if cores else ""


def _cores_option(summary: JobSummary) -> str:
    """Name the option to lower: the one that alone makes up all cores, as the submit line or else the steps tell.

    A job without steps may have started its tasks by mpirun: nothing tells how many, unless the submit line does.
    """
    record, tasks = summary.record, step_tasks(summary)
    options = asked_options(record.submit_line)
    if "exclusive" in options:
        return ""
    if named := [option for option in _CORE_OPTIONS if option in options]:
        amounts = {str(record.cpus), str(asked_cores(summary))}
        option = next((option for option in named if options[option] in amounts), "")
        return "" if option == "cpus-per-task" and tasks not in {None, 1} else option
    # Steps of one task that ran side by side were one of the job's tasks each.
    if tasks == 1 and summary.memory.slurm_peak_is_whole:
        return "cpus-per-task"
    return "ntasks" if tasks == record.cpus else ""


def _memory_beside_bytes(summary: JobSummary, cores: int) -> int | None:
    """Return the memory to ask for with fewer cores; None where the job keeps enough without a word."""
    asked = summary.memory.asked_bytes
    if not asked or "mem" in asked_options(summary.record.submit_line):
        return None
    size = _memory_to_keep_bytes(summary, asked)
    is_enough = size <= asked * cores / summary.record.cpus
    return None if is_enough and not is_asked_per_core(summary) else size


def _memory_to_keep_bytes(summary: JobSummary, asked_bytes: float) -> int:
    if was_killed_for_memory(summary):
        return memory_to_ask_bytes(asked_bytes, OOM_RESERVE)
    peak = memory_peak_bytes(summary.memory)
    if peak is None:
        return int(asked_bytes)
    size = memory_to_ask_bytes(peak)
    # One that did not come to its end may have needed more.
    return size if summary.record.state in SETTLED_STATES else max(size, int(asked_bytes))
