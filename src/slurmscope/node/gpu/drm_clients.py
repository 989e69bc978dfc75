# SPDX-License-Identifier: Apache-2.0
"""Read from the kernel which processes use GPUs of AMD and Intel, for how long, and with how much memory.

::

    drm-driver:     amdgpu                  /proc/PID/fdinfo/N of a render node that the process has open
    drm-pdev:       0000:c1:00.0
    drm-client-id:  7                       the same for all descriptors of one opened file: counts once
    drm-engine-compute:  2481000000 ns      (xe: drm-cycles-ccs and drm-total-cycles-ccs)
    drm-resident-vram:   1048576 KiB

Jobs of ROCm use the KFD, which has a folder of its own for each process: ``/sys/class/kfd/kfd/proc/PID``. Only a file
of the kernel's DRM has these lines, and only one below ``/dev/dri`` is read: whatever users call their programs and
files, they cannot forge a client.
"""

from __future__ import annotations

import bisect
import itertools
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurmscope.node.kernel_files import HangGuard, read_bytes, read_number

MOST_PROCESSES = 16_384
MOST_OF_A_JOB = 512
"""Processes of one job that are looked at: one with very many must not hide those of others."""
READING_SECONDS = 1.0
"""Time for all processes: users have one read in turn, those that used a GPU at the last reading first."""
MOST_DESCRIPTORS = 512
"""Descriptors of a process that are looked at, lowest first: a runtime opens the GPU early."""
MOST_CLIENTS = 64
"""Clients of one process that are read."""
MOST_ENGINES = 32
TEXT_BYTES = 8192

_LINE = re.compile(rb"^drm-([a-z-]+?)(?:-([a-z0-9_+]{1,32}))?:[ \t]*(\S+)(?:[ \t]+(ns|KiB|MiB))?[ \t]*$", re.MULTILINE)
_PDEV = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BYTES = {b"KiB": 1 << 10, b"MiB": 1 << 20}
_OWN_MEMORY = ("vram", "local")
_RENDER_NODES = b"/dev/dri/"
_MOST = 1 << 62

ClientKey = tuple[str, int]
"""PCI address of the GPU, and the kernel's number of the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrmClient:
    """One opened file of a GPU.

    ``engines`` are busy seconds by kind of engine; ``cycles`` instead are busy cycles and all cycles so far. A kind
    has as many engines as ``capacity`` says, or one.
    """

    key: ClientKey
    engines: Mapping[str, float] = field(default_factory=dict)
    cycles: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int | None = None

    @property
    def has_worked(self) -> bool:
        """Return whether it did anything or holds memory: a runtime opens all GPUs, also those it does not use."""
        return bool(self.memory_bytes or any(self.engines.values()) or any(busy for busy, _ in self.cycles.values()))


def parse_fdinfo(text: bytes) -> DrmClient | None:
    """Parse the text of one descriptor; None if it is no client of a GPU on PCI."""
    values: defaultdict[bytes, dict[str, int]] = defaultdict(dict)
    pdev = ""
    for name, part, value, unit in itertools.islice(_LINE.findall(text), 8 * MOST_ENGINES):
        if name == b"pdev":
            pdev = value.decode("ascii", "replace")
        elif value.isdigit() and len(value) <= 20:
            values[name][part.decode("ascii")] = int(value) * _BYTES.get(unit, 1)
    # "client-id" has the form of a name and a part.
    number = values[b"client"].get("id")
    if number is None or not _PDEV.fullmatch(pdev):
        return None
    totals = values[b"total-cycles"]
    return DrmClient(
        key=(pdev, number),
        engines={name: nanoseconds / 1e9 for name, nanoseconds in values[b"engine"].items() if nanoseconds < _MOST},
        cycles={name: (busy, totals[name]) for name, busy in values[b"cycles"].items() if totals.get(name)},
        capacity={name: count for name, count in values[b"engine-capacity"].items() if 0 < count <= MOST_ENGINES},
        memory_bytes=_memory_bytes(values),
    )


def _memory_bytes(values: Mapping[bytes, Mapping[str, int]]) -> int | None:
    """Return the GPU's own memory that the client holds; ``drm-memory`` is what older kernels have for it."""
    for name in (b"resident", b"memory"):
        sizes = [size for region, size in values.get(name, {}).items() if region.startswith(_OWN_MEMORY)]
        if sizes and sum(sizes) < _MOST:
            return sum(sizes)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientList:
    """The clients of all processes that were read, with the first process that has each open.

    ``is_denied`` if a process could not be read for lack of permission.
    """

    clients: Mapping[ClientKey, tuple[int, DrmClient]] = field(default_factory=dict)
    is_denied: bool = False


def choose_processes(jobs: Iterable[tuple[Hashable, Collection[int]]]) -> dict[Hashable, set[int]]:
    """Return the processes to look at by user: of each job, which is given with its user, those of lowest numbers."""
    found: defaultdict[Hashable, set[int]] = defaultdict(set)
    for user, pids in jobs:
        found[user].update(sorted(pids)[:MOST_OF_A_JOB])
    return dict(found)


class ReadingOrder:
    """Decide in which order processes are read, of which there may be too many for one reading.

    Users take turns, so that one with thousands of processes that are slow to read hides none of another. Of each user,
    those that use a GPU come first, then the others from where the last reading ended.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._readings = 0

    def sort(self, users: Mapping[Hashable, Collection[int]], known: Collection[int]) -> Iterator[int]:
        """Yield processes by user, and those of nobody that are known to use a GPU."""
        self._last = {user: pid for user, pid in self._last.items() if user in users}
        strangers = set(known).difference(*users.values())
        queues = [iter(sorted(strangers)), *(self._of_user(user, pids, known) for user, pids in users.items())]
        # Nobody is the first in every reading: a single process may be slow enough to use up the time.
        self._readings += 1
        first = self._readings % len(queues)
        return itertools.islice(_take_turns([*queues[first:], *queues[:first]]), MOST_PROCESSES)

    def _of_user(self, user: Hashable, pids: Collection[int], known: Collection[int]) -> Iterator[int]:
        first = [pid for pid in known if pid in pids]
        yield from first
        others = sorted(set(pids).difference(first))
        start = bisect.bisect(others, self._last.get(user, 0))
        for pid in (*others[start:], *others[:start]):
            self._last[user] = pid
            yield pid


def _take_turns(queues: list[Iterator[int]]) -> Iterator[int]:
    while queues:
        for queue in tuple(queues):
            pid = next(queue, None)
            if pid is None:
                queues.remove(queue)
            else:
                yield pid


def read_clients(
    procfs: Path,
    pids: Iterable[int],
    *,
    guard: HangGuard | None = None,
    seconds: float = READING_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> ClientList:
    """Read the clients of these processes, in this order and for so long.

    One that vanishes, is broken or hangs affects only itself.
    """
    found: dict[ClientKey, tuple[int, DrmClient]] = {}
    is_denied, until = False, clock() + seconds
    for pid in pids:
        if clock() >= until:
            break
        try:
            for client in _read_guarded(procfs, pid, guard):
                found.setdefault(client.key, (pid, client))
        except PermissionError:
            is_denied = True
        except OSError:
            continue
    return ClientList(clients=found, is_denied=is_denied)


def _read_guarded(procfs: Path, pid: int, guard: HangGuard | None) -> list[DrmClient]:
    def read() -> list[DrmClient]:
        return list(_clients_of(procfs / str(pid)))

    return read() if guard is None else guard.run_for(pid, read, [])


def _clients_of(folder: Path) -> Iterator[DrmClient]:
    with os.scandir(folder / "fd") as entries:
        names = [entry.name for entry in itertools.islice(entries, MOST_DESCRIPTORS)]
    targets = (name for name in names if _target(folder / "fd" / name).startswith(_RENDER_NODES))
    for name in itertools.islice(targets, MOST_CLIENTS):
        if (client := parse_fdinfo(_read_text(folder / "fdinfo" / name))) is not None:
            yield client


def _target(link: Path) -> bytes:
    """Return what a descriptor refers to, without following it."""
    try:
        return os.fsencode(link.readlink())
    except PermissionError:
        raise
    except OSError:  # closed meanwhile, or a path that is too long
        return b""


def _read_text(file: Path) -> bytes:
    """Read the text of a descriptor; empty if that fails, except for lack of permission."""
    try:
        with file.open("rb", buffering=0) as opened:
            return opened.read(TEXT_BYTES) or b""
    except PermissionError:
        raise
    except OSError:
        return b""


_MINOR = re.compile(rb"^drm_render_minor (\d{1,6})$", re.MULTILINE)


def read_kfd(sysfs: Path) -> dict[int, dict[int, int]]:
    """Return the memory that processes of ROCm hold, by the minor number of the GPU's render node and process."""
    root = sysfs / "class/kfd/kfd"
    minors: dict[int, int] = {}
    for node in sorted((root / "topology/nodes").glob("*"))[:MOST_CLIENTS]:
        match, number = _MINOR.search(read_bytes(node / "properties", TEXT_BYTES)), read_number(node / "gpu_id")
        if match and number:
            minors[number] = int(match[1])
    found: dict[int, dict[int, int]] = {minor: {} for minor in minors.values()}
    for folder in itertools.islice((root / "proc").glob("[0-9]*"), MOST_PROCESSES):
        for number, minor in minors.items():
            # A process has such a file for each GPU; of one that it does not use, it is 0.
            if (size := read_number(folder / f"vram_{number}")) and folder.name.isdigit():
                found[minor][int(folder.name)] = size
    return found
