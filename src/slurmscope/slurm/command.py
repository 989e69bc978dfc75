# SPDX-License-Identifier: Apache-2.0
"""Run Slurm's commands with a timeout and a limit on their output.

A command gets an argument list and never a shell, an environment of its own, a session of its own, a
time limit and an output limit. Whatever is left in its process group is killed with it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from slurmscope.core.config import file_path, folder_path
from slurmscope.core.errors import (
    CommandError,
    CommandFailed,
    CommandMissing,
    CommandRefused,
    CommandTimedOut,
    MalformedAnswer,
)
from slurmscope.core.log import escape
from slurmscope.core.settings import choice, duration, parse_text, setting
from slurmscope.http.client.address import ServerAddress, parse_address

OUTPUT_LIMIT_BYTES = 512 * 1024 * 1024
"""Limit on the output of one command, and of all commands that run at the same time."""
OWN_OUTPUT_BYTES = 32 * 1024 * 1024
"""Output that a command may always have, whatever the others print."""
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/usr/local/slurm/bin"

_FAILURE_LIMIT_BYTES = 64 * 1024
_BLOCK_BYTES = 64 * 1024  # the capacity of a pipe
_EXIT_CHECK_SECONDS = 0.1
# A grandchild may keep our pipes open after the command has ended: its output is not waited for longer.
_GRACE_SECONDS = 0.25
_KILL_SECONDS = 2.0
_MESSAGE_LIMIT = 300

# Seen from Slurm 22.05 with the controller down, stopped, munge down, a wrong munge key or no
# configuration; the rate limit's text is that of 23.02 and later.
_REFUSALS = (
    "unable to contact slurm controller",
    "munge encode failed",
    "munge decode failed",
    "protocol authentication error",
    "authentication credential",
    "zero bytes were transmitted or received",
    "permission denied",
    "doesn't have privilege",
    "rate limit exceeded",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "no route to host",
    "problem talking to",
    "unable to connect to database",
    "could not establish a configuration source",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """The output of a successful command; ``stderr`` is safe to log, line by line."""

    stdout: bytes
    stderr: str
    duration_seconds: float


def find_command(name: str, bin_path: Path | None, *, search_path: str = SEARCH_PATH) -> Path:
    """Return the absolute path of a program: from ``bin_path`` alone where it is given."""
    if "/" in name:
        candidates = [Path(name)]
    elif bin_path is not None:
        candidates = [bin_path.absolute() / name]
    else:
        candidates = [Path(folder) / name for folder in search_path.split(":")]
    for candidate in candidates:
        # access first: is_file raises an error where a folder on the way may not be entered.
        if candidate.is_absolute() and os.access(candidate, os.X_OK) and candidate.is_file():
            return candidate
    if "/" in name:
        raise CommandMissing((name,), f"{escape(name)} is not the absolute path of an executable program")
    where = "the usual folders" if bin_path is None else escape(str(bin_path))
    raise CommandMissing(
        (name,), f"{escape(name)} was not found in {where}; set the folder of Slurm's commands with --slurm.bin-path"
    )


def command_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a Slurm command, given our own.

    Everything that changes what Slurm prints (``SQUEUE_*``, ``SINFO_*``, ``SLURM_CLUSTERS``, …) is left
    out. Times are printed as seconds since 1970: local times are ambiguous for an hour each autumn.
    """
    passed_on = {name: inherited[name] for name in ("SLURM_CONF", "SLURM_JWT", "TZ") if name in inherited}
    return {**passed_on, "PATH": SEARCH_PATH, "LC_ALL": "C", "SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s"}


class OutputRoom:
    """Limit the memory that all running commands take together."""

    def __init__(self, limit_bytes: int, own_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._own_bytes = own_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()

    def take(self, block_bytes: int, *, had_bytes: int) -> bool:
        """Reserve room for a command that has had some; return whether there is any."""
        with self._lock:
            is_modest = had_bytes + block_bytes <= self._own_bytes
            if not is_modest and self._used_bytes + block_bytes > self.limit_bytes:
                return False
            self._used_bytes += block_bytes
            return True

    def give_back(self, had_bytes: int) -> None:
        with self._lock:
            self._used_bytes -= had_bytes


_ROOM = OutputRoom(OUTPUT_LIMIT_BYTES, OWN_OUTPUT_BYTES)


def run(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    environment: Mapping[str, str],
    stdin: bytes = b"",
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
    room: OutputRoom = _ROOM,
) -> CommandOutput:
    """Run a command to its end and return its output, or raise an error that names the cause.

    Only an exit code of 0 gives a result: the error carries the beginning of what a failing command printed.
    Text on stderr alone is no failure. The caller's thread does the reading; no other thread is started.
    """
    started = time.monotonic()
    if not argv or not argv[0].startswith("/"):
        raise CommandMissing(argv, f"{escape(argv[0]) if argv else 'the command'} is not an absolute path")
    output = _Output(name=_name(argv), limit_bytes=output_limit_bytes, room=room)
    with _start(argv, environment, stdin) as child:
        try:
            has_ended = _gather(child, output, started + timeout_seconds)
        except ChildProcessError as error:
            raise CommandFailed(argv, f"the exit code of {_name(argv)} was lost: SIGCHLD is ignored") from error
        finally:
            room.give_back(output.stdout.tell())
    if not has_ended:
        raise CommandTimedOut(
            argv, f"{_name(argv)} timed out after {timeout_seconds:g} s and was killed; see --slurm.timeout"
        )
    stderr = _printable(output.stderr.getvalue())
    if child.returncode != 0:
        raise _failure(argv, child.returncode, stderr, output.stdout.getvalue()[:_FAILURE_LIMIT_BYTES])
    return CommandOutput(stdout=output.stdout.getvalue(), stderr=stderr, duration_seconds=time.monotonic() - started)


@contextlib.contextmanager
def _start(argv: Sequence[str], environment: Mapping[str, str], stdin: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in a session of its own; at the end nothing of it is left running or open.

    These arguments let Python use vfork: starting costs the same however large this process is.
    """
    try:
        with _open_input(stdin) as stream:
            child = subprocess.Popen(
                argv,
                stdin=stream,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise CommandMissing(argv, f"cannot run {_name(argv)}: {escape(str(error))}") from error
    except (OSError, ValueError) as error:
        raise CommandFailed(argv, f"cannot start {_name(argv)}: {escape(str(error))}") from error
    try:
        yield child
    finally:
        _end(child)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


def _open_input(data: bytes) -> BinaryIO:
    """Return what the command reads; a file in memory, so that no thread has to feed a pipe."""
    if not data:
        return Path(os.devnull).open("rb", buffering=0)
    stream = os.fdopen(os.memfd_create("stdin"), "w+b", buffering=0)
    stream.write(data)
    stream.seek(0)
    return stream


@dataclass(slots=True, kw_only=True)
class _Output:
    """Collect the output of a command, up to a limit."""

    name: str
    limit_bytes: int
    room: OutputRoom
    stdout: io.BytesIO = field(default_factory=io.BytesIO)
    stderr: io.BytesIO = field(default_factory=io.BytesIO)

    def take_stdout(self, block: bytes) -> None:
        """Keep all of it, or raise: a truncated answer is useless."""
        if self.stdout.tell() + len(block) > self.limit_bytes:
            raise MalformedAnswer(f"{self.name} printed more than {self.limit_bytes} bytes")
        if not self.room.take(len(block), had_bytes=self.stdout.tell()):
            raise MalformedAnswer(f"{self.name} and other commands printed more than {self.room.limit_bytes} bytes")
        self.stdout.write(block)

    def take_stderr(self, block: bytes) -> None:
        """Keep the beginning, which has the cause."""
        self.stderr.write(block[: _FAILURE_LIMIT_BYTES - self.stderr.tell()])


def _gather(child: subprocess.Popen[bytes], output: _Output, deadline: float) -> bool:
    """Read both streams to their end; return whether the command ended before the deadline."""
    assert child.stdout is not None and child.stderr is not None  # noqa: S101, PT018 - set in _start
    takers = {child.stdout.fileno(): output.take_stdout, child.stderr.fileno(): output.take_stderr}
    poller = select.poll()
    for descriptor in takers:
        poller.register(descriptor, select.POLLIN)
    has_ended = False
    while takers:
        now = time.monotonic()
        if not has_ended and _has_ended(child.pid):
            has_ended, deadline = True, min(deadline, now + _GRACE_SECONDS)
        if now >= deadline:
            return has_ended
        for descriptor, _ in poller.poll(1000 * min(deadline - now, _EXIT_CHECK_SECONDS)):
            if block := os.read(descriptor, _BLOCK_BYTES):
                takers[descriptor](block)
            else:
                poller.unregister(descriptor)
                del takers[descriptor]
    return has_ended or _wait_for_end(child.pid, deadline)


def _wait_for_end(pid: int, deadline: float) -> bool:
    """Wait for a command that has closed its output: usually it ends at the same moment."""
    pause_seconds = 0.0005
    while not _has_ended(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, 0.05)
    return True


def _has_ended(pid: int) -> bool:
    """Check without reaping: until it is reaped, its process group ID cannot be reused."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    # One that hangs inside the kernel (a dead file server) outlives even this; a later start reaps it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_KILL_SECONDS)


def _failure(argv: Sequence[str], returncode: int, stderr: str, stdout: bytes) -> CommandError:
    lines = [line for line in stderr.splitlines() if line.strip()]
    refusal = next((line for line in lines if any(text in line.lower() for text in _REFUSALS)), None)
    how = f"exit code {returncode}" if returncode > 0 else _signal_name(-returncode)
    said = escape((refusal or (lines[0] if lines else "nothing on stderr")).strip(), _MESSAGE_LIMIT)
    error_type = CommandFailed if refusal is None else CommandRefused
    return error_type(argv, f"{_name(argv)} ended with {how}: {said}", stdout)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"


def _printable(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "backslashreplace").split("\n")
    return "\n".join(escape(line) for line in lines).rstrip("\n")


def _name(argv: Sequence[str]) -> str:
    return escape(argv[0].rpartition("/")[2], _MESSAGE_LIMIT)


RunCommand = Callable[[str, Sequence[str]], bytes]
"""Run a command of Slurm by its name and return what it printed."""

SLURMRESTD_PORT = 6820
"""The port in the examples of the slurmrestd manual."""

_HEADER_WORD = re.compile(r"[!-~]{0,256}")
_VERSION = re.compile(r"(?:v0\.0\.[0-9]{1,3})?")


def parse_header_word(given: object) -> str:
    """Parse a user name that is valid in an HTTP header."""
    text = parse_text(given)
    if not _HEADER_WORD.fullmatch(text):
        raise ValueError(f"{given!r} is not a valid user name; use up to 256 printable ASCII characters without spaces")
    return text


def parse_version(given: object) -> str:
    """Parse a version of the slurmrestd API."""
    text = parse_text(given)
    if not _VERSION.fullmatch(text):
        raise ValueError(f"{given!r} is not an API version such as v0.0.42")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """How Slurm's commands and slurmrestd are called."""

    bin_path: Path | None = folder_path(None, "Folder with Slurm's commands; default is to search PATH.")
    poll_limit: float = duration(
        10.0,
        "Minimum interval between Slurm calls of the same kind, regardless of the number of scrapes.",
        environment=("POLL_LIMIT",),
    )
    timeout: float = duration(8.0, "Timeout for Slurm commands and slurmrestd requests.", environment=("CLI_TIMEOUT",))
    private_data: str = choice(
        "respect",
        ("respect", "ignore"),
        "Slurm's PrivateData: respect drops series by user, job or account that it hides; ignore exposes them.",
    )
    backend: str = choice(
        "text",
        ("text", "json", "rest"),
        "Source of jobs and nodes: Slurm commands with text or json output, or slurmrestd (rest), which needs"
        " SLURM_BITSTR_LEN=0 in its environment.",
    )
    rest_url: ServerAddress | None = setting(
        None,
        "Address of slurmrestd, for the rest backend: http[s]://HOST:PORT or unix:/PATH.",
        parse=partial(parse_address, default_port=SLURMRESTD_PORT),
        metavar="URL",
    )
    rest_token_file: Path | None = file_path(
        None, "File with the JSON Web Token for slurmrestd; it is reread when it changes."
    )
    rest_user: str = setting(
        "", "User name to send with the token; required by Slurm 22.05 only.", parse=parse_header_word, metavar="USER"
    )
    rest_version: str = setting(
        "",
        "API version of slurmrestd, such as v0.0.42; default is the newest that both sides support.",
        parse=parse_version,
        metavar="VERSION",
    )


def random_separator() -> str:
    """Return a separator that cannot occur in a job name or a drain reason: it is random and new for every call."""
    return os.urandom(8).hex()  # the module secrets would load 4 MB of cryptography into every agent


class SlurmCommands:
    """Run Slurm's commands and count the calls."""

    def __init__(self, settings: SlurmSettings, environment: Mapping[str, str]) -> None:
        """Set what every call needs; ``environment`` is that of this process."""
        self.runs: Counter[str] = Counter()
        self._settings = settings
        self._environment = command_environment(environment)
        self._search_path = f"{environment.get('PATH', '')}:{SEARCH_PATH}"

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        """Return the standard output of one command, or raise a CommandError that names the cause."""
        program = find_command(name, self._settings.bin_path, search_path=self._search_path)
        self.runs[name] += 1
        answer = run([str(program), *arguments], timeout_seconds=self._settings.timeout, environment=self._environment)
        return answer.stdout
