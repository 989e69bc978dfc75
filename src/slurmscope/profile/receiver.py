# SPDX-License-Identifier: Apache-2.0
"""Receive the events of Slurm's profiling plugin in one thread."""

from __future__ import annotations

import logging
import os
import select
import socket
import stat
import struct
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.check import Check
from slurmscope.core.errors import MalformedAnswer, SourceError
from slurmscope.core.log import escape, fields
from slurmscope.http.server.address import remove_socket
from slurmscope.profile.events import MAX_DATAGRAM_BYTES, Profile, parse_event
from slurmscope.profile.steps import ProfileSteps

logger = logging.getLogger(__name__)


_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group
# Room for the credentials and nothing else: the kernel then discards descriptors that a sender attaches.
_ANCILLARY_BYTES = socket.CMSG_LEN(_CREDENTIALS.size)
# A burst may fill the queue as fast as it is emptied; what is left is received the next time.
_DATAGRAMS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram and the real uid of its sender; None if the kernel did not say."""

    content: bytes
    sender_uid: int | None


class PathInUse(SourceError):
    """Another process listens on the path."""


class DatagramSocket:
    """Listen on a path that only its owner and root can send to."""

    def __init__(self, path: Path) -> None:
        """Bind the path, and replace a socket that no process listens on any more; raise SourceError on failure."""
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            # Before bind: no datagram may arrive without credentials.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            _remove_dead_socket(path)
            self._socket.bind(str(path))
            path.chmod(0o600)
            self._inode = path.stat().st_ino
        except (OSError, ValueError) as error:
            self._socket.close()
            raise SourceError(f"cannot listen on {escape(str(path))}: {error}") from error
        except SourceError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Iterator[Datagram]:
        """Yield what has arrived, without waiting."""
        for _ in range(_DATAGRAMS_AT_ONCE):
            try:
                content, ancillary, _, _ = self._socket.recvmsg(MAX_DATAGRAM_BYTES + 1, _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                raise SourceError(f"cannot receive on {escape(str(self._path))}: {error}") from error
            yield Datagram(content, _sender(ancillary))

    def close(self) -> None:
        """Stop listening, and remove the path unless another process has replaced it."""
        self._socket.close()
        remove_socket(self._path, self._inode)


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) == _CREDENTIALS.size:
            _, uid, _ = _CREDENTIALS.unpack(data)
            return int(uid)
    return None


def _remove_dead_socket(path: Path) -> None:
    """Remove a socket that an earlier process left; raise SourceError if it is in use or not a socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SourceError(f"{escape(str(path))} exists and is not a socket; remove it or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise PathInUse(f"another process listens on {escape(str(path))}")


ROOT_UID = 0
# Why a datagram was not used.
SENDER, MALFORMED = "sender", "malformed"
# After a reload the path is free as soon as the old receiver is closed.
RETRY_SECONDS = 0.5
END_SECONDS = 5.0


QUEUE_LENGTH_FILE = Path("/proc/sys/net/unix/max_dgram_qlen")
# What systemd sets. All tasks of a step are sampled at once, each in a datagram of its own.
ENOUGH_DATAGRAMS = 512
QUEUE_ADVICE = f"with many tasks per node, samples are lost: run sysctl net.unix.max_dgram_qlen={ENOUGH_DATAGRAMS}"


class Intake:
    """Know whether this process receives samples, another one does, or why none can."""

    def __init__(self, steps: ProfileSteps) -> None:
        self._steps = steps
        self.error: str | None = None
        self.is_elsewhere = False
        self.has_tried = threading.Event()

    def settle(self, error: str | None = None, *, is_elsewhere: bool = False) -> None:
        self.error, self.is_elsewhere = error, is_elsewhere
        self.has_tried.set()

    def read(self) -> Profile:
        """Return the current steps, none while another process receives them; raise SourceError on failure."""
        if self.error is not None:
            raise SourceError(self.error)
        return Profile() if self.is_elsewhere else self._steps.snapshot()

    def read_own(self) -> Profile | None:
        """Return the current steps, None while this process does not receive any."""
        return None if self.is_elsewhere or self.error is not None else self._steps.snapshot()

    def check(self, name: str, place: str, settings: str) -> Check:
        """Check whether samples can be received at a place, which some settings name."""
        elsewhere = f"another process, such as the running agent, receives on {place}"
        return Check(
            name=name,
            is_good=self.error is None,
            message=self.error or (elsewhere if self.is_elsewhere else f"can receive on {place}"),
            advice="" if self.error is None else f"no metrics of profile: check {settings}",
        )


class ProfileReceiver:
    """Run the receiving thread; only datagrams of these users are accepted, by default only those of root."""

    def __init__(self, path: Path, steps: ProfileSteps, *, senders: Collection[int] = (ROOT_UID,)) -> None:
        """Start listening; ``close`` ends it. A path that cannot be bound is tried again and again."""
        self._path = path
        self._steps = steps
        self._senders = frozenset(senders)
        self.intake = Intake(steps)
        self._is_stopping = False
        self._wake_up, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="profile-receiver", daemon=True)
        self._thread.start()
        self.intake.has_tried.wait(END_SECONDS)

    def checks(self) -> Iterator[Check]:
        """Check whether samples can be received, and without losing many."""
        yield self.intake.check("profile socket", str(self._path), "profile.socket and its directory")
        length = _queue_length()
        yield Check(
            name="profile queue",
            is_good=length is None or length >= ENOUGH_DATAGRAMS,
            message=f"the kernel queues {length or 'an unknown number of'} datagrams per socket",
            advice="" if length is None or length >= ENOUGH_DATAGRAMS else QUEUE_ADVICE,
        )

    def close(self) -> None:
        self._is_stopping = True
        os.write(self._waker, b"x")
        self._thread.join(END_SECONDS)
        os.close(self._waker)
        os.close(self._wake_up)

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._listen()
            except PathInUse as error:  # the agent, seen from doctor or --once; or our own receiver, at a reload
                self.intake.settle(is_elsewhere=True)
                logger.warning("profiling samples are received elsewhere", extra=fields(error=str(error)))
            except SourceError as error:
                self.intake.settle(str(error))
                logger.error("profiling samples cannot be received", extra=fields(error=str(error)))
            except Exception as error:  # a bug must not end the receiver for good
                self.intake.settle(repr(error))
                logger.exception("profiling samples cannot be received")
            self._wait(None, RETRY_SECONDS)

    def _listen(self) -> None:
        listening = DatagramSocket(self._path)
        try:
            self.intake.settle()
            logger.info("receiving profiling samples", extra=fields(socket=str(self._path)))
            while not self._is_stopping:
                self._wait(listening)
                # First empty the queue, which is short, then take the time to parse.
                for datagram in list(listening.receive()):
                    self._handle(datagram)
        finally:
            listening.close()

    def _wait(self, listening: DatagramSocket | None, seconds: float | None = None) -> None:
        poll = select.poll()
        for file in (self._wake_up, listening):
            if file is not None:
                poll.register(file, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)

    def _handle(self, datagram: Datagram) -> None:
        if datagram.sender_uid not in self._senders:
            self._reject(SENDER, f"sent by uid {datagram.sender_uid}, which is not root")
            return
        try:
            event = parse_event(datagram.content)
        except MalformedAnswer as error:
            self._reject(MALFORMED, str(error))
        else:
            self._steps.handle(event)

    def _reject(self, reason: str, why: str) -> None:
        logger.warning("profiling datagram rejected", extra=fields(reason, reason=reason, error=why))
        self._steps.reject(reason)


def _queue_length() -> int | None:
    try:
        return int(QUEUE_LENGTH_FILE.read_text("ascii"))
    except (OSError, ValueError):
        return None
