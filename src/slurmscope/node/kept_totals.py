# SPDX-License-Identifier: Apache-2.0
"""Keep the totals of ended processes over a restart of the agent, in a small file.

Of each counter two numbers are kept: its total, and the part of it that the kernel has forgotten. A new agent counts
the living processes from their start and adds the forgotten part; a process that ended meanwhile is missing, but no
total begins below the old one.

The file is beside the sockets of the agent, in memory: jobs do not survive a reboot. Names of programs come from users.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurmscope.core.log import fields
from slurmscope.node.job_use import JobKey
from slurmscope.node.procfs.process_totals import Kept, Totals

logger = logging.getLogger(__name__)

NAME = "totals.json"
MAX_BYTES = 4 << 20
"""Thousands of jobs; of more, the last ones are not kept."""
MAX_TOTALS = 100
MAX_NUMBER = 1 << 62
WITNESSES = 8
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptJob:
    """The totals of one job; ``witnesses`` are its oldest processes, by PID and start time: one must still run."""

    key: JobKey
    witnesses: tuple[tuple[int, int], ...] = ()
    totals: Totals = field(default_factory=dict)


class TotalsFile:
    """Write and read the totals of all jobs; a file that cannot be trusted counts as none."""

    def __init__(self, path: Path | None, boot_id: str) -> None:
        """Take the file, None to keep nothing, and the ID of this boot of the kernel."""
        self._path = path
        self._boot_id = boot_id
        self._written = b""

    @property
    def is_kept(self) -> bool:
        return self._path is not None

    def read(self) -> dict[JobKey, KeptJob]:
        """Return the jobs of the agent that ran before."""
        if self._path is None:
            return {}
        try:
            text = _read(self._path)
            return {} if text is None else {job.key: job for job in parse_totals(text, self._boot_id)}
        except (OSError, ValueError) as error:
            logger.warning("totals of ended processes not restored", extra=fields(file=self._path, error=str(error)))
            return {}

    def write(self, jobs: Iterable[KeptJob]) -> None:
        """Replace the file unless nothing changed; a failure is logged once, and costs no reading."""
        if self._path is None:
            return
        text = write_totals(jobs, self._boot_id)
        if text == self._written:
            return
        try:
            _replace(self._path, text)
            self._written = text
        except OSError as error:
            logger.warning("totals of ended processes not kept", extra=fields(file=self._path, error=str(error)))
            self._path = None


def find_totals_file(environment: Mapping[str, str]) -> Path | None:
    """Return the file in the directory that systemd makes for the agent, and keeps while it restarts."""
    folder = environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(folder) / NAME if folder.startswith("/") else None


def read_boot_id(procfs_root: Path) -> str:
    """Return the ID of this boot of the kernel; empty where it is not known."""
    try:
        return (procfs_root / "sys/kernel/random/boot_id").read_text(encoding="ascii")[:100].strip()
    except (OSError, ValueError):
        return ""


def write_totals(jobs: Iterable[KeptJob], boot_id: str) -> bytes:
    """Return the contents of the file.

    A job may count as far as it likes, by writing to /dev/null, and must not make the file one that is refused.
    """
    room, parts = MAX_BYTES - 1000, list[str]()
    for job in jobs:
        if any(abs(number) > MAX_NUMBER for kept in job.totals.values() for number in kept):
            continue
        key = [job.key.job_id, job.key.node_name, job.key.sluid]
        part = json.dumps([key, job.witnesses, job.totals], separators=(",", ":"))
        room -= len(part) + 1
        if room < 0:
            break
        parts.append(part)
    return f'{{"version":{_VERSION},"boot":{json.dumps(boot_id)},"jobs":[{",".join(parts)}]}}'.encode("ascii")


def parse_totals(text: bytes, boot_id: str) -> list[KeptJob]:
    """Parse the contents of the file; none of another version or boot. Raise ValueError for anything unexpected."""
    try:
        document = json.loads(text)
        if document["version"] != _VERSION or document["boot"] != boot_id:
            return []
        return [_parse_job(*job) for job in document["jobs"]]
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"unexpected contents: {error!r}") from error


def _parse_job(key: list[object], witnesses: list[list[object]], totals: Mapping[str, list[object]]) -> KeptJob:
    job_id, node_name, sluid = key
    if not isinstance(node_name, str) or not isinstance(sluid, str):
        raise ValueError("a name is not a text")
    if len(witnesses) > WITNESSES or len(totals) > MAX_TOTALS:
        raise ValueError("too many entries")
    return KeptJob(
        key=JobKey(_number(job_id), node_name, sluid),
        witnesses=tuple((_number(pid), _number(start)) for pid, start in witnesses),
        totals={name: Kept(_number(total), _number(ended)) for name, (total, ended) in totals.items()},
    )


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_NUMBER:
        raise ValueError("not a plausible number")
    return value


def _read(path: Path) -> bytes | None:
    """Return the contents; None without a file. Only a regular file that no other user could write is read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ValueError("it is not a file of this user that only this user can write")
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError("it is too large")
    return text


def _replace(path: Path, text: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
