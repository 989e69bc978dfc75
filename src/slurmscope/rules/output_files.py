# SPDX-License-Identifier: Apache-2.0
"""Find out where the output of a job is, from accounting, its submit line or Slurm's default."""

from __future__ import annotations

import re
from typing import NamedTuple

from slurmscope.model.job_record import JobRecord
from slurmscope.rules.known import submit_options

MAX_PATH = 4096
_NOT_IN_ARRAY = 4_294_967_294
_MAX_WIDTH = 10
_PATTERN = re.compile(r"%(?P<width>[0-9]{0,2})(?P<code>[%AaJjNnstuxb])")


class OutputFiles(NamedTuple):
    """Hold the paths; ``is_assumed`` where they are Slurm's default, which the script may have changed."""

    stdout: str
    stderr: str
    is_assumed: bool


def find_output_files(record: JobRecord) -> OutputFiles:
    """Return where the output went; empty paths for a job whose output went to a terminal."""
    command = record.submit_line.split(maxsplit=1)[0].rpartition("/")[2] if record.submit_line.strip() else ""
    options = submit_options(record.submit_line)
    stdout = record.stdout or options.get("output", "") or options.get("o", "")
    stderr = record.stderr or options.get("error", "") or options.get("e", "")
    is_batch = command == "sbatch" or any(step.name == "batch" for step in record.steps)
    if not stdout and not is_batch:
        return OutputFiles("", _place(record, stderr), is_assumed=False)
    default = "slurm-%j.out" if record.array_task_id is None else "slurm-%A_%a.out"
    out = _place(record, stdout or default)
    return OutputFiles(out, _place(record, stderr) or out, is_assumed=not stdout)


def expand_pattern(pattern: str, record: JobRecord) -> str:
    """Replace ``%j`` and the other patterns of sbatch; a backslash anywhere switches them off."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    return _PATTERN.sub(lambda found: _expand(found["code"], found["width"], record), pattern)


def _place(record: JobRecord, pattern: str) -> str:
    if not pattern:
        return ""
    path = expand_pattern(pattern[:MAX_PATH], record)
    is_relative = not path.startswith("/") and bool(record.work_dir)
    return f"{record.work_dir.rstrip('/')}/{path}" if is_relative else path


def _expand(code: str, width: str, record: JobRecord) -> str:
    task = _NOT_IN_ARRAY if record.array_task_id is None else record.array_task_id
    # Of a step and its tasks, the output of the script is that of the first.
    numbers = {
        "A": record.job_id if record.array_job_id is None else record.array_job_id,
        "a": task,
        "b": task % 10,
        "j": record.job_id,
        "J": record.job_id,
        "n": 0,
        "s": 0,
        "t": 0,
    }
    if code in numbers:
        return str(numbers[code]).zfill(min(int(width or 0), _MAX_WIDTH))
    node = record.nodes[0].partition(".")[0] if record.nodes else "%N"
    return {"N": node, "u": record.user, "x": record.name, "%": "%"}[code]
