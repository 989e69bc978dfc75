# SPDX-License-Identifier: Apache-2.0
"""Find the program file that a slurmd executes for each step: the kernel reports when it is opened."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath

from slurmscope.sources.procfs.process import Missing
from slurmscope.sources.procfs.reader import ProcessReader

_DAEMON, _STEP_DAEMON = "slurmd", "slurmstepd"
# Option of slurmd for another program.
_PROGRAM_OPTION = "-d"


def find_stepd_programs(reader: ProcessReader, daemons: Iterable[int]) -> list[Path] | None:
    """Return each file once, as this process sees it; None if that of a slurmd is not known."""
    found: dict[tuple[int, int], Path] = {}
    for pid in sorted(daemons):
        path = _program(reader, pid)
        if path is None:
            return None
        try:
            status = path.stat()
        except OSError:
            return None
        found.setdefault((status.st_dev, status.st_ino), path)
    return list(found.values())


def _program(reader: ProcessReader, pid: int) -> Path | None:
    """Return the path beside slurmd, below the root directory of that process: it may run in a container."""
    with reader.process(pid) as process:
        if isinstance(process, Missing):
            return None
        program, words = process.program(), process.command_line()
    if isinstance(program, Missing) or isinstance(words, Missing):
        return None
    if any(word.startswith(_PROGRAM_OPTION) for word in words[1:]):
        return None
    # Debian calls them slurmd-wlm and slurmstepd-wlm. An upgraded program has " (deleted)" behind its name.
    path = PurePath(program.removesuffix(" (deleted)"))
    name = path.name.replace(_DAEMON, _STEP_DAEMON, 1)
    return reader.root / str(pid) / "root" / path.with_name(name).relative_to("/")
