# SPDX-License-Identifier: Apache-2.0
"""Find jobs by their processes, where Slurm does not create cgroups for them (proctrack/linuxproc).

Each step has a slurmstepd with the job ID in its title; its descendants are the processes of the job. A process that
is reparented stays in the job once it was seen in it. Where several slurmd run on the machine, each job has the node
name of its slurmd; where there is one, the machine has only one node.

slurmstepd is no child of its slurmd, and its title has no node name. It listens on a socket in the spool directory of
its slurmd, called NODE_JOB.STEP. Users can give their sockets such names too, so only those that it has open count.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path, PurePath

from slurmscope.node.cgroup.folders import Members
from slurmscope.node.job_use import CgroupUse, CpuUse, GroupKey, JobKey
from slurmscope.node.kernel_files import Missing
from slurmscope.node.procfs.io_totals import KeptTotals
from slurmscope.node.procfs.process import Process
from slurmscope.node.procfs.process_totals import Totals
from slurmscope.node.procfs.reader import ProcessReader, StatWatch
from slurmscope.node.procfs.stat import ProcessSample, child_ticks

COMMAND = "slurmstepd"
DAEMON = "slurmd"
# Descriptors of a slurmstepd that are checked; it has about twenty.
TARGET_LIMIT = 1000
SOCKET_TARGET = re.compile(rb"socket:\[([0-9]{1,20})\]")
# The path ends the line; any character may be in the folders.
SOCKET_NAME = re.compile(rb"/([0-9A-Za-z._-]{1,128})_([0-9]{1,10})\.[0-9]{1,10}(?:\.[0-9]{1,10})?$")
INODE_FIELD = 6


def read_node_name(process: Process, job_id: int) -> str | Missing | None:
    """Return the node name of a slurmstepd; None while it does not listen yet."""
    targets: list[bytes] = []
    files = process.open_files(TARGET_LIMIT, targets.append)
    if isinstance(files, Missing):
        return files
    if not files.has_targets:
        return Missing.DENIED
    found = (SOCKET_TARGET.fullmatch(target) for target in targets)
    inodes = {match[1] for match in found if match}
    table = process.unix_sockets() if inodes else b""
    return table if isinstance(table, Missing) else parse_node_name(table, inodes, job_id)


def parse_node_name(table: bytes, inodes: Collection[bytes], job_id: int) -> str | None:
    """Find the socket of a step of this job among some inodes in ``/proc/net/unix``."""
    for line in table.splitlines():
        fields = line.split(None, INODE_FIELD + 1)
        if len(fields) > INODE_FIELD + 1 and fields[INODE_FIELD] in inodes:
            name = SOCKET_NAME.search(fields[INODE_FIELD + 1])
            if name and int(name[2]) == job_id:
                return name[1].decode("ascii")
    return None


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
    name = path.name.replace(DAEMON, COMMAND, 1)
    return reader.root / str(pid) / "root" / path.with_name(name).relative_to("/")


TITLE = re.compile(r"slurmstepd: \[([0-9]{1,10})\.([0-9A-Za-z+]{1,32})")
# The PID of another process may have been reused by a job; all processes are checked again after this time. Without
# jobs this is most of what the agent costs, and a PID is reused only after thousands of new processes.
RECHECK_SECONDS = 30.0
QUIET_RECHECK_SECONDS = 300.0
# While no slurmd runs: the first job comes some seconds after it starts.
NO_DAEMON_SECONDS = 10.0
# A slurmstepd gets its title a moment after it was started, and listens on its socket a moment later; scans until it
# counts as another process, or without a node name.
NAME_TRIES = 8
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


_CPU_TIMES = ("user_ticks", "system_ticks")
_NO_TIME = (0, 0)


class StepdJob:
    """Read one job that was found by its processes."""

    def __init__(self, key: JobKey, reader: ProcessReader) -> None:
        self.key = key
        self.path: Path | None = None
        self.uid: int | None = None
        self.stepds: dict[int, tuple[int, str]] = {}
        self.starts: dict[int, int] = {}
        self.last: Mapping[int, ProcessSample] = {}
        self._reader = reader
        self._cpu = KeptTotals(_NO_TIME)

    def keep(self) -> Totals:
        """Return what a new agent needs to continue the CPU time."""
        return dict(zip(_CPU_TIMES, self._cpu.keep(_NO_TIME), strict=True))

    def resume(self, kept: Totals) -> None:
        """Continue the CPU time of an agent that ran before."""
        if all(name in kept for name in _CPU_TIMES):
            self._cpu.resume([kept[name] for name in _CPU_TIMES])

    @property
    def steps(self) -> frozenset[str]:
        """Return the names of the running steps."""
        return frozenset(step for _, step in self.stepds.values())

    def read(self) -> CgroupUse | None:
        """Read the CPU time, with that of children that were waited for; nothing else is known without a cgroup."""
        samples = self._samples()
        if not samples:
            return None
        user, system = self._cpu.update((sample, self._spent(sample)) for sample in samples)
        return CgroupUse(
            cpu=CpuUse(
                total_seconds=(user + system) / TICKS_PER_SECOND,
                user_seconds=user / TICKS_PER_SECOND,
                system_seconds=system / TICKS_PER_SECOND,
            )
        )

    def _spent(self, sample: ProcessSample) -> tuple[int, int]:
        """Return the CPU time of a process and of its children that ended; of slurmstepd only that of these."""
        user, system = child_ticks(sample)
        return (user, system) if sample.pid in self.stepds else (user + sample.user_ticks, system + sample.system_ticks)

    def read_groups(self, *, steps: bool, tasks: bool) -> Mapping[GroupKey, CgroupUse]:
        """Return nothing: steps are not distinguished."""
        return {}

    def members(self) -> Members:
        """Return the processes of the last scan that are still the same."""
        pids = {sample.pid for sample in self._samples()}
        return Members(stepd=tuple(sorted(pids & self.stepds.keys())), user=tuple(sorted(pids - self.stepds.keys())))

    def remove(self, pid: int) -> None:
        self.stepds.pop(pid, None)
        self.starts.pop(pid, None)

    def _samples(self) -> list[ProcessSample]:
        # Parents first: the time of a child that ends meanwhile is missed once instead of counted twice.
        # One that hangs or is faulty keeps its last sample: else it would count as ended, and again when it is back.
        pids = sorted(self.starts, key=lambda pid: (self.starts[pid], pid))
        samples = [
            sample for sample in self._reader.read(pids, self.last) if self.starts[sample.pid] == sample.start_ticks
        ]
        self.last = {sample.pid: sample for sample in samples}
        return samples


class StepdTree:
    """Track the jobs that have a slurmstepd on this node. Not thread-safe."""

    def __init__(self, reader: ProcessReader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._clock = clock
        self._trusted_uids = (0, os.geteuid())
        self._rechecked_at = 0.0
        self._jobs: dict[JobKey, StepdJob] = {}
        self._job_of: dict[int, StepdJob] = {}
        self._others: set[int] = set()
        self._daemons: set[int] = set()
        self._waiting: set[int] = set()
        self._checked: set[int] = set()
        self._tries: Counter[int] = Counter()
        self._scanned_at = 0.0
        self._watch = StatWatch(reader)

    def close(self) -> None:
        """Close the files that stay open between scans; closing twice is harmless."""
        self._watch.close()

    def is_quiet(self) -> bool:
        """Return whether no job runs and none can have started since the last scan, which costs next to nothing.

        A slurmd that starts a step forks, and then its ``stat`` line is another: it has more page faults.
        """
        if self._jobs or self._waiting:
            return False
        if not self._daemons:
            return self._clock() < self._scanned_at + NO_DAEMON_SECONDS
        return self._watch.is_unchanged()

    def programs(self) -> list[Path] | None:
        """Return the files of which one is opened when a step starts; None if they are not all known."""
        return find_stepd_programs(self._reader, self._daemons)

    def scan(self) -> dict[JobKey, StepdJob]:
        """Return the current jobs; the same job is the same object at each scan."""
        self._scanned_at = self._clock()
        lines = self._watch.read()
        jobs = self._scan()
        # A slurmd found now has no line from before the scan: what it did meanwhile is not known.
        self._watch.watch(self._daemons, lines)
        return jobs

    def _scan(self) -> dict[JobKey, StepdJob]:
        current = set(self._reader.process_ids())
        for pid in self._job_of.keys() - current:
            self._remove(pid)
        self._others &= current
        self._tries = Counter({pid: tries for pid, tries in self._tries.items() if pid in current})
        is_idle = self._daemons and not self._jobs
        if self._clock() >= self._rechecked_at + (QUIET_RECHECK_SECONDS if is_idle else RECHECK_SECONDS):
            self._recheck()
        self._assign(self._reader.read(sorted(current - self._others - self._job_of.keys())))
        self._jobs = {key: job for key, job in self._jobs.items() if job.starts}
        return dict(self._jobs)

    def _recheck(self) -> None:
        self._rechecked_at = self._clock()
        self._others.clear()
        last = {pid: sample for job in self._jobs.values() for pid, sample in job.last.items()}
        starts = {sample.pid: sample.start_ticks for sample in self._reader.read(self._job_of, last)}
        for pid, job in list(self._job_of.items()):
            if starts.get(pid) != job.starts[pid]:
                self._remove(pid)

    def _assign(self, samples: list[ProcessSample]) -> None:
        """Assign new processes to the jobs of their parents, which usually, but not always, have lower PIDs."""
        self._find_daemons(samples)
        self._waiting.clear()
        self._checked.clear()
        while samples:
            rest = [sample for sample in samples if not self._adopt(sample)]
            if len(rest) == len(samples):
                break
            samples = rest
        self._tries.update(self._waiting)
        # While a new slurmstepd waits for its name, its children belong to no job yet.
        if not self._waiting:
            self._others.update(sample.pid for sample in samples if not self._is_of_slurm(sample))

    def _adopt(self, sample: ProcessSample) -> bool:
        parent = self._job_of.get(sample.parent_id)
        is_younger = parent is not None and parent.starts[sample.parent_id] <= sample.start_ticks
        if parent is not None and is_younger and self._is_same(parent, sample.parent_id):
            self._add(parent, sample)
            return True
        if not self._is_of_slurm(sample):
            return False
        if sample.command == COMMAND:
            return self._adopt_stepd(sample)
        if sample.parent_id in self._daemons:
            self._wait(sample.pid)  # forked by a slurmd, and will be a slurmstepd in a moment
        return False

    def _is_same(self, job: StepdJob, pid: int) -> bool:
        """Return whether a process of a job is the one that was seen, and not another with its number.

        Not its user: in a container, and by setuid programs, a job has processes of several users.
        """
        if pid not in self._checked:
            if [job.starts[pid]] != [sample.start_ticks for sample in self._reader.read([pid], job.last)]:
                self._remove(pid)
                self._wait(pid)  # at the next scan, it is one like any other
                return False
            self._checked.add(pid)
        return True

    def _is_of_slurm(self, sample: ProcessSample) -> bool:
        """Return whether a process may be a slurmd or slurmstepd; any may have such a name, see _is_slurms_own."""
        return sample.command in {COMMAND, DAEMON} and sample.uid in self._trusted_uids

    def _find_daemons(self, samples: list[ProcessSample]) -> None:
        self._daemons.clear()
        self._daemons.update(sample.pid for sample in samples if self._is_daemon(sample))

    def _wait(self, pid: int) -> bool:
        """Try a process again at the next scan; return False after too many tries."""
        if self._tries[pid] >= NAME_TRIES:
            return False
        self._waiting.add(pid)
        return True

    def _is_daemon(self, sample: ProcessSample) -> bool:
        """Return whether a process is a slurmd, and not one that a slurmd has forked."""
        if sample.command != DAEMON or sample.uid not in self._trusted_uids or sample.parent_id in self._daemons:
            return False
        with self._reader.process(sample.pid) as process:
            return not isinstance(process, Missing) and self._is_slurms_own(process, DAEMON)

    def _adopt_stepd(self, sample: ProcessSample) -> bool:
        with self._reader.process(sample.pid) as process:
            if isinstance(process, Missing) or not self._is_slurms_own(process, COMMAND):
                return False
            words = process.command_line()
            title = TITLE.match(words[0]) if not isinstance(words, Missing) and words else None
            if title is None:
                self._wait(sample.pid)
                return False
            node_name = self._node_name(process, int(title[1]))
        if node_name is None:
            return False
        key = JobKey(int(title[1]), node_name)
        job = self._jobs.setdefault(key, StepdJob(key, self._reader))
        job.stepds[sample.pid] = (sample.start_ticks, title[2])
        self._add(job, sample)
        return True

    def _node_name(self, process: Process, job_id: int) -> str | None:
        """Return the node name; None if it should be tried again, empty if there is one slurmd or it is not known."""
        if len(self._daemons) < 2:
            return ""
        name = read_node_name(process, job_id)
        if isinstance(name, str):
            return name
        return None if name is not Missing.DENIED and self._wait(process.pid) else ""

    def _is_slurms_own(self, process: Process, command: str) -> bool:
        """Return whether a process runs a program of Slurm and was started by it.

        A setuid program runs as root too, under any name and title that its user gives it, but its real user is the
        one who started it. Without permission to read the program's path, that has to suffice.
        """
        program = process.program()
        if program is Missing.DENIED:
            program = command
        # Debian's program is slurmstepd-wlm, called slurmstepd by a link.
        if isinstance(program, Missing) or not PurePath(program).name.startswith(command):
            return False
        return process.real_user() in self._trusted_uids

    def _add(self, job: StepdJob, sample: ProcessSample) -> None:
        self._checked.add(sample.pid)
        job.starts[sample.pid] = sample.start_ticks
        self._job_of[sample.pid] = job
        if job.uid is None and sample.uid != 0:
            job.uid = sample.uid

    def _remove(self, pid: int) -> None:
        self._job_of.pop(pid).remove(pid)
