# SPDX-License-Identifier: Apache-2.0
r"""Run a command to its end: one thread starts it, waits for signals, samples, and reaps its orphans.

The command is in our process group. So whatever a terminal sends (Ctrl-C, Ctrl-\, Ctrl-Z, hang-up) reaches it too, and
Slurm signals every process of a step: passing these on would deliver them twice. A signal that another process sends
to us alone has to be passed on. For the few that send to the whole group, such as timeout(1), there is no way to know.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from slurmscope.core.errors import SlurmscopeError
from slurmscope.core.log import escape
from slurmscope.jobs.traced_run import SlurmContext, TracedRun, TreeSample
from slurmscope.run.context import OwnLimits
from slurmscope.run.process_tree import TreeMeter
from slurmscope.run.report import SampleHistory, has_shared_pages

SHORTEST_SECONDS = 0.02
GROWTH = 0.1
"""The interval grows by this share of the run time so far, up to the sample rate."""
FREE_SECONDS = 0.02
"""CPU time of sampling that every command may cost."""
LEAST_REST = 500.0
"""Beyond that we rest this many times as long as a sample took: 0.2 % of one core at most."""


def next_interval(elapsed_seconds: float, sample_rate: float, *, cost_seconds: float, spent_seconds: float) -> float:
    """Return the time until the next sample; the last one cost some CPU time, and all of them what was spent."""
    wanted = min(sample_rate, max(SHORTEST_SECONDS, GROWTH * elapsed_seconds))
    return max(wanted, LEAST_REST * cost_seconds) if spent_seconds > FREE_SECONDS else wanted


NOT_EXECUTABLE = 126
NOT_FOUND = 127

_PR_SET_CHILD_SUBREAPER = 36
# Python ignores these; programs expect the default.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


class CommandNotStarted(SlurmscopeError):
    """A command could not be started; ``code`` is the exit code that shells use for that."""

    def __init__(self, command: str, error: OSError) -> None:
        self.code = NOT_FOUND if error.errno in {errno.ENOENT, errno.ENOTDIR} else NOT_EXECUTABLE
        super().__init__(f"cannot run {escape(command)}: {error.strerror or error}")


def become_subreaper() -> bool:
    """Let this process adopt descendants whose parent ends; return whether the kernel agreed."""
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not refused


def start(command: tuple[str, ...], environment: Mapping[str, str], *, unblocked: Iterable[signal.Signals]) -> int:
    """Start a command and return its PID; raise CommandNotStarted.

    ``unblocked`` are the signals that this process has blocked for itself.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - set(unblocked)
    try:
        return os.posix_spawnp(command[0], command, environment, setsigmask=mask, setsigdef=_RESTORED)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise CommandNotStarted(command[0], error) from error
    # A script without its first line; shells run it with /bin/sh.
    script = shutil.which(command[0]) or command[0]
    try:
        return os.posix_spawn(
            "/bin/sh", ["sh", script, *command[1:]], environment, setsigmask=mask, setsigdef=_RESTORED
        )
    except OSError as error:
        raise CommandNotStarted(command[0], error) from error


PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGTSTP, signal.SIGCONT,
)  # fmt: skip

_BY_USER = frozenset({0, -1, -6})
"""SI_USER, SI_QUEUE and SI_TKILL: sent by a process. What the kernel sends, as for a terminal, has other codes."""


def caught_signals() -> tuple[signal.Signals, ...]:
    """Return the signals to wait for; those that this process was started to ignore, as by nohup, stay ignored."""
    wanted = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    return (*wanted, signal.SIGALRM, signal.SIGCHLD)


def must_pass_on(
    info: signal.struct_siginfo, *, is_own: Callable[[int], bool], sender_name: Callable[[int], str]
) -> bool:
    """Return whether the command has not received this signal yet.

    ``is_own`` returns whether a PID is the command or one of its descendants, ``sender_name`` the name of a program.
    """
    if info.si_code not in _BY_USER or is_own(info.si_pid):
        return False
    return not sender_name(info.si_pid).startswith("slurmstepd")


def name_of(pid: int, procfs_root: Path = Path("/proc")) -> str:
    """Return the name of a process; empty if it is gone."""
    try:
        return (procfs_root / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


MOST_LEFT = 10_000
"""Orphans that are reaped after the end of the command, at most."""


class Helper(Protocol):
    """Be a program of ours that runs beside the command."""

    @property
    def pid(self) -> int:
        """Return its process ID."""
        ...


H = TypeVar("H", bound=Helper)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What to run, and how often to sample it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    host: str
    user: str
    slurm: SlurmContext
    sample_rate: float


class Runner:
    """Run one command, in the main thread only: it waits for signals. :meth:`close` ends that."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._meter = TreeMeter(self.now)
        self._history = SampleHistory()
        self._signals = caught_signals()
        self._mask_before: set[int] | None = None
        self._status: int | None = None
        self._started = 0.0
        self._left = 0
        self._faults: dict[str, bool] = {}
        self._lock = threading.Lock()
        self._spent = 0.0
        self.pid = 0
        self.start_seconds = 0.0
        self.on_sample: Callable[[TreeSample], None] = lambda _sample: None
        self.on_end: Callable[[], None] = lambda: None
        self.starters: list[Callable[[], None]] = []
        """Called when the command has started. Threads may be started only here: they must not receive our signals."""

    def run(self) -> TracedRun:
        """Start the command, and return what it used when it has ended; raise CommandNotStarted."""
        limits = OwnLimits()
        allowance, kills_before = limits.read(), limits.oom_kills()
        is_subreaper = become_subreaper()
        # A parent that ignores this signal passes that on, and then the kernel reports no ended children.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        wall_seconds = self._run_to_end()
        code = os.waitstatus_to_exitcode(self._status or 0)
        samples = self._history.samples()
        run = TracedRun(
            command=self._plan.command,
            host=self._plan.host,
            user=self._plan.user,
            work_dir=_work_dir(),
            start_seconds=self.start_seconds,
            wall_seconds=wall_seconds,
            exit_code=max(0, code),
            exit_signal=max(0, -code),
            allowance=allowance,
            slurm=self._plan.slurm,
            samples=samples,
            peak_resident_bytes=self._meter.peak_resident_bytes or None,
            # One ran, however short.
            peak_processes=max(1, self._meter.peak_processes),
            peak_threads=max(1, self._meter.peak_threads),
            program_threads=self._meter.program_threads,
            oom_kills=_growth(kills_before, limits.oom_kills()),
            processes_left=self._left,
        )
        return replace(run, problems=(*_problems(run, self._meter, is_subreaper=is_subreaper), *self._faults))

    def close(self) -> None:
        """Accept signals again, and forget those that came for the command after its end."""
        self._meter.close()
        if self._mask_before is not None:
            while pending := signal.sigpending() & set(self._signals):
                signal.sigwait(pending)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)
            self._mask_before = None

    def start_helper(self, start: Callable[[], H]) -> H:
        """Start a program that is not part of the command; any thread may."""
        with self._lock:
            helper = start()
            self._meter.ignored.add(helper.pid)
            return helper

    def pids(self) -> frozenset[int]:
        """Return the processes of the command at the last sample; from any thread."""
        return self._meter.pids()

    def terminate(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGTERM)

    def now(self) -> float:
        """Return the Unix time, without the steps that a clock makes when it is set."""
        return self.start_seconds + time.monotonic() - self._started

    def _run_to_end(self) -> float:
        self.start_seconds, self._started = time.time(), time.monotonic()
        self.pid = start(self._plan.command, self._plan.environment, unblocked=self._signals)
        self._meter.note_start()
        for start_thread in self.starters:
            self._try(start_thread)
        due = self._started
        while self._status is None:
            left_seconds = due - time.monotonic()
            if left_seconds <= 0:
                due = self._take_sample()
            else:
                self._wait_for_signal(left_seconds)
        wall_seconds = time.monotonic() - self._started
        self._take_last_sample()
        self._try(self.on_end)
        return wall_seconds

    def _try(self, measure: Callable[[], T]) -> T | None:
        """Do something that is not the command's business; whatever fails, the command goes on and is waited for."""
        try:
            return measure()
        except Exception as error:  # noqa: BLE001 - the user's command matters more than our fault
            self._faults[f"Something was not measured or not sent: {escape(str(error) or repr(error), 200)}."] = True
            return None

    def _wait_for_signal(self, longest_seconds: float) -> None:
        # Not sigtimedwait: after a stop that lasts longer than its timeout, Python returns its previous signal again.
        signal.setitimer(signal.ITIMER_REAL, longest_seconds)
        info = signal.sigwaitinfo(self._signals)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if info.si_signo == signal.SIGCHLD:
            while self._status is None and self._reap_one():
                pass
        else:
            self._pass_on(info)

    def _take_sample(self) -> float:
        """Take a sample, and return when the next one is due."""
        before = time.thread_time()
        self._try(self._scan)
        cost = time.thread_time() - before
        self._spent += cost
        now = time.monotonic()
        return now + next_interval(
            now - self._started, self._plan.sample_rate, cost_seconds=cost, spent_seconds=self._spent
        )

    def _scan(self) -> None:
        with self._lock:
            sample = self._meter.scan()
        self._history.add(sample)
        self.on_sample(sample)

    def _take_last_sample(self) -> None:
        for _ in range(MOST_LEFT):
            if not self._reap_one():
                break
        with self._lock:
            last = self._try(self._meter.scan) or TreeSample(self.now(), 0.0, 0.0, 0, 0, 0)
        self._left = last.processes
        samples = self._history.samples()
        if samples and not last.processes:
            # Sizes are those before the end.
            before = samples[-1]
            last = last._replace(
                resident_bytes=before.resident_bytes, processes=before.processes, threads=before.threads
            )
        self._history.add(last)

    def _pass_on(self, info: signal.struct_siginfo) -> None:
        """Pass a signal on, unless the command has it already or it is our own timer."""
        number = info.si_signo
        if must_pass_on(info, is_own=self._is_own, sender_name=name_of):
            # It may have ended, or run as another user.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)
        if number == signal.SIGTSTP:
            # Stop as well, as the shell that started us expects.
            os.kill(os.getpid(), signal.SIGSTOP)

    def _reap_one(self) -> bool:
        """Reap one ended child; return whether there was one."""
        with self._lock:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None:
                return False
            status = self._meter.reap(ended.si_pid)
        if ended.si_pid == self.pid:
            self._status = status
        return True

    def _is_own(self, pid: int) -> bool:
        return pid == self.pid or self._meter.has(pid)


def _problems(run: TracedRun, meter: TreeMeter, *, is_subreaper: bool) -> tuple[str, ...]:
    """List what was not measured, in sentences."""
    found = {
        "Processes whose parent ended were not followed: the kernel refused.": not is_subreaper,
        "The I/O of processes that run as another user is included only after their end.": meter.has_unread_io,
        "Memory that processes share counts once for each, so the sum is above the limit.": has_shared_pages(run),
        "The command ended before its memory could be read.": run.peak_resident_bytes is None,
    }
    return tuple(sentence for sentence, is_so in found.items() if is_so)


def _growth(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _work_dir() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a text for the report
    except OSError:
        return ""
