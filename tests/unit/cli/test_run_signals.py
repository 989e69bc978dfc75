# SPDX-License-Identifier: Apache-2.0
"""``slurmscope run`` passes signals on once, and keeps the terminal for the command."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.traced_command import SLURMSCOPE, plain_environment, python
from tests.processes import PATIENCE_SECONDS, until

# Counts signals until its input ends, then prints how many there were.
COUNTING = """
import os, signal, sys
seen = []
def note(number, frame):
    seen.append(number)
    os.write(1, b"got %d\\n" % number)  # not print, which the signal may have interrupted
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), note)
print("ready", flush=True)
while sys.stdin.readline() not in ("end\\n", ""): pass
print("total", len(seen), flush=True)
"""


@pytest.fixture(autouse=True)
def no_ignored_signals() -> Iterator[None]:
    """Start commands as from a terminal: a program in the background of a script inherits ignored signals."""
    ignored = [number for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP) if _is_ignored(number)]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def counting(*names: str, own_group: bool = False) -> Iterator[subprocess.Popen[str]]:
    argv = [*SLURMSCOPE, "run", "--quiet", "--", *python(COUNTING), *names]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=plain_environment(),
        process_group=0 if own_group else None,
    ) as process:
        try:
            assert process.stdout
            assert "ready\n" == process.stdout.readline()
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[str], line: str = "") -> str:
    assert process.stdin
    assert process.stdout
    if line:
        process.stdin.write(line)
        process.stdin.flush()
    return process.stdout.readline()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_signal_to_us_reaches_the_command_once(name: str) -> None:
    number = getattr(signal, name)
    with counting(name) as process:
        process.send_signal(number)

        assert f"got {number}\n" == answer(process)
        assert "total 1\n" == answer(process, "end\n")
        assert 0 == process.wait(PATIENCE_SECONDS)


def test_signal_that_the_command_does_not_handle_ends_both() -> None:
    with counting() as process:
        process.send_signal(signal.SIGTERM)

        assert 128 + signal.SIGTERM == process.wait(PATIENCE_SECONDS)


def test_ignored_hang_up_stays_ignored() -> None:
    """As nohup starts it."""
    argv = ["nohup", *SLURMSCOPE, "run", "--quiet", "--", "sh", "-c", "echo ready; read line; echo end"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, env=plain_environment()) as process:  # fmt: skip
        assert "ready\n" == answer(process)
        process.send_signal(signal.SIGHUP)
        assert "end\n" == answer(process, "go\n")
        process.wait(PATIENCE_SECONDS)


def test_stopped_runner_continues_and_reports_everything(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    work = "import time\nprint('ready', flush=True)\nwhile time.process_time() < 0.6: pass\nprint('done', flush=True)"
    argv = [*SLURMSCOPE, "run", "-f", "json", "-o", str(file), "--", *python(work)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=plain_environment()) as process:
        assert process.stdout
        assert "ready\n" == process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        assert "done\n" == process.stdout.readline()
        process.send_signal(signal.SIGCONT)
        assert 0 == process.wait(PATIENCE_SECONDS)

    assert 0.6 <= json.loads(file.read_bytes())["summary"]["cpu"]["time"]["used"] < 0.9


def test_stop_by_kill_stops_both_and_continue_resumes_both() -> None:
    # The kernel stops no group of processes that has no parent in its session, such as that of a service.
    with counting(own_group=True) as process:
        child = child_of(process.pid)
        process.send_signal(signal.SIGTSTP)
        until(lambda: {"T"} == {state_of(process.pid), state_of(child)})

        process.send_signal(signal.SIGCONT)
        until(lambda: "T" not in {state_of(process.pid), state_of(child)})
        assert "total 0\n" == answer(process, "end\n")


class Terminal:
    """Run a command on a terminal of its own, as a login shell would."""

    def __init__(self, *argv: str) -> None:
        self.pid, self._fd = pty.fork()
        if not self.pid:
            os.execvpe(argv[0], argv, plain_environment({"LC_ALL": "C"}))
        self.seen = ""

    def read_until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self._fd], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self._fd, 4096).decode()
                except OSError:  # the terminal's other end is closed
                    break
        assert text in self.seen, self.seen

    def type_until(self, text: str, shown: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while shown not in self.seen:
            assert time.monotonic() < deadline, self.seen
            self.type(text)
            self.read_for(2.0, shown)

    def read_for(self, seconds: float, shown: str) -> None:
        until = time.monotonic() + seconds
        while shown not in self.seen and (left := until - time.monotonic()) > 0:
            if select.select([self._fd], [], [], left)[0]:
                try:
                    self.seen += os.read(self._fd, 4096).decode()
                except OSError:  # the shell has ended
                    self.seen += shown

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait(self) -> int:
        self.read_rest()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def read_rest(self) -> None:
        try:
            while chunk := os.read(self._fd, 4096):
                self.seen += chunk.decode()
        except OSError:
            pass
        os.close(self._fd)


def test_command_has_the_terminal() -> None:
    program = "import os; print(*map(os.isatty, (0, 1, 2)), os.tcgetpgrp(0) == os.getpgrp())"
    terminal = Terminal(*SLURMSCOPE, "run", "--quiet", "--", *python(program))

    assert 0 == terminal.wait()
    assert "True True True True\r\n" == terminal.seen


def test_ctrl_c_reaches_the_command_once() -> None:
    terminal = Terminal(*SLURMSCOPE, "run", "--quiet", "--", *python(COUNTING), "SIGINT")
    terminal.read_until("ready")

    terminal.type("\x03")
    terminal.read_until("got 2")
    terminal.type("end\n")

    assert 0 == terminal.wait()
    assert "total 1" in terminal.seen


CONTINUED = """
import os, signal, time
def end(number, frame):
    os.write(1, b"con" + b"tinued\\n")
    os._exit(0)
signal.signal(signal.SIGCONT, end)
print("beg" + "un", flush=True)
while True: time.sleep(0.1)
"""


def test_ctrl_z_stops_both_and_the_shell_continues_both(tmp_path: Path) -> None:
    """A shell with job control, as on a login node."""
    shell = Terminal("bash", "--norc", "--noediting", "-i")
    shell.type("PS1=; stty -echo; echo the-shell-is-'ready'\n")
    shell.read_until("the-shell-is-ready")
    script = tmp_path / "command.py"
    script.write_text(CONTINUED)
    shell.type(" ".join([*SLURMSCOPE, "run", "--quiet", "--", sys.executable, str(script)]) + "\n")
    shell.read_until("begun")

    shell.type("\x1a")
    shell.read_until("Stopped")
    # A shell that changes the mode of its terminal may miss what is typed meanwhile.
    shell.type_until("fg\n", "continued")

    shell.type_until("exit\n", "exit")
    shell.wait()


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
