# SPDX-License-Identifier: Apache-2.0
"""Keep the daemons of one lab: start, stop, freeze and thaw each by its name."""

import signal
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace

from lab.errors import LabError
from lab.processes import Daemon, Process, end_processes, identify, kill_processes, spawn
from lab.waiting import wait_until

READY_SECONDS = 120.0


class Supervisor:
    """Hold the daemons by name, in the order in which they were started."""

    def __init__(self, daemons: Iterable[Daemon] = (), on_change: Callable[[], None] = lambda: None) -> None:
        """Take over daemons that run already; on_change is called after each start and end."""
        self._daemons = {daemon.name: daemon for daemon in daemons}
        self._children: list[subprocess.Popen[bytes]] = []
        self._on_change = on_change

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        """Give all daemons, also those that a test has killed."""
        return tuple(self._daemons.values())

    def is_alive(self, name: str) -> bool:
        """Tell whether the daemon runs (a frozen one does)."""
        return self._get(name).is_alive

    def start(self, daemon: Daemon) -> Process:
        """Start a daemon and remember it."""
        child = spawn(daemon.argv, daemon.environment, daemon.log_file)
        self._children.append(child)
        process = identify(child.pid)
        self._daemons[daemon.name] = replace(daemon, process=process)
        self._on_change()
        return process

    def restart(self, name: str) -> None:
        """Start a daemon again that has ended."""
        if self.is_alive(name):
            raise LabError(f"{name} runs already")
        self.start(self._get(name))

    def wait_ready(self, name: str, is_ready: Callable[[], object]) -> None:
        """Wait until the daemon does its work; raise with the end of its log when it dies instead."""

        def ready_or_dead() -> bool:
            return bool(is_ready()) or not self.is_alive(name)

        try:
            wait_until(ready_or_dead, f"{name} to be ready", timeout_seconds=READY_SECONDS)
        except LabError as error:
            raise LabError(f"{error}; it wrote:\n{self._get(name).log_tail()}") from error
        if not self.is_alive(name):
            raise LabError(f"{name} ended at once; it wrote:\n{self._get(name).log_tail()}")

    def suspend(self, name: str) -> None:
        """Freeze a daemon: it keeps its sockets and answers nothing."""
        self._send(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a frozen daemon go on."""
        self._send(name, signal.SIGCONT)

    def kill(self, name: str) -> None:
        """Kill a daemon without a chance to tidy up."""
        kill_processes(_processes([self._get(name)]))
        self._reap()
        self._on_change()

    def end(self, names: Iterable[str]) -> None:
        """End several daemons together, gently first."""
        known = [self._daemons[name] for name in names if name in self._daemons]
        end_processes(_processes(known))
        self._reap()
        self._on_change()

    def _send(self, name: str, number: signal.Signals) -> None:
        process = self._get(name).process
        if process is None or not process.is_alive:
            raise LabError(f"{name} does not run")
        process.send(number)

    def _get(self, name: str) -> Daemon:
        try:
            return self._daemons[name]
        except KeyError:
            raise LabError(f"no daemon is called {name}; there are {', '.join(self._daemons)}") from None

    def _reap(self) -> None:
        """Collect the exit status of ended children, which stay zombies otherwise."""
        self._children = [child for child in self._children if child.poll() is None]


def _processes(daemons: Iterable[Daemon]) -> list[Process]:
    return [daemon.process for daemon in daemons if daemon.process is not None]
