# SPDX-License-Identifier: Apache-2.0
"""Give a test a network of its own: two hosts with one link between them, which can be set down.

Both hosts are network namespaces of the kernel. The calling thread, and what it starts, is on the first one; programs
of the second one are started with ``Network.remote``. Nothing of it is seen outside, and all of it ends with the block.
"""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabUnavailable
from lab.requirements import find_program
from lab.waiting import wait_until

# Addresses of RFC 5737, which no real network uses.
ADDRESS = "192.0.2.1"
REMOTE_ADDRESS = "192.0.2.2"
_LINK, _REMOTE_LINK = "near0", "far0"
_CLONE_NEWNET = 0x40000000
_SECONDS = 30.0
_OWN_NAMESPACE = Path("/proc/thread-self/ns/net")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Hold the process in whose namespace the second host is."""

    pid: int

    @property
    def remote(self) -> tuple[str, ...]:
        """Return the prefix of commands that run on the second host."""
        return (find_program("nsenter", "util-linux"), f"--target={self.pid}", "--net")

    def cut(self) -> None:
        """Set the link down."""
        _ip("link", "set", _LINK, "down")

    def restore(self) -> None:
        """Set the link up again."""
        _ip("link", "set", _LINK, "up")


@contextlib.contextmanager
def two_hosts() -> Iterator[Network]:
    """Put the calling thread on the first of two new hosts, until the block ends."""
    with contextlib.ExitStack() as stack:
        before = os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, before)
        _call("unshare", _CLONE_NEWNET)
        stack.callback(_call, "setns", before, _CLONE_NEWNET)
        holder = stack.enter_context(
            subprocess.Popen([find_program("unshare", "util-linux"), "--net", "sleep", "infinity"])
        )
        stack.callback(holder.kill)
        network = Network(pid=holder.pid)
        wait_until(lambda: _is_elsewhere(holder.pid), "a network namespace", timeout_seconds=_SECONDS)
        _ip("link", "add", _LINK, "type", "veth", "peer", "name", _REMOTE_LINK, "netns", str(holder.pid))
        _raise_links((), _LINK, ADDRESS)
        _raise_links(network.remote, _REMOTE_LINK, REMOTE_ADDRESS)
        yield network


def _is_elsewhere(pid: int) -> bool:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino != _OWN_NAMESPACE.stat().st_ino


def _raise_links(host: tuple[str, ...], link: str, address: str) -> None:
    _ip("link", "set", "lo", "up", host=host)
    _ip("address", "add", f"{address}/30", "dev", link, host=host)
    _ip("link", "set", link, "up", host=host)


def _ip(*words: str, host: tuple[str, ...] = ()) -> None:
    argv = [*host, find_program("ip", "iproute2"), *words]
    subprocess.run(argv, check=True, capture_output=True, timeout=_SECONDS)


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        reason = os.strerror(ctypes.get_errno())
        raise LabUnavailable(f"This process may not make network namespaces ({reason}): run the test as root.")
