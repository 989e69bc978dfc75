# SPDX-License-Identifier: Apache-2.0
"""Claim ports that nobody else on this machine uses.

A Slurm lab takes a block of neighbouring ports, and the number of the block also names its nodes: whoever holds the
ports holds the node names, hence the cgroups. The first port of a block belongs to no daemon; it is the lock that keeps
two labs apart while both are starting, before their daemons have bound the others.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lab.errors import LabUnavailable

# Below the range from which Linux takes ports for outgoing connections (32768 and up).
FIRST_PORT = 21000
BLOCK_SIZE = 20
BLOCK_COUNT = 500
MAX_NODES = BLOCK_SIZE - 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PortBlock:
    """Hold the ports of one lab."""

    number: int

    @property
    def base(self) -> int:
        """Give the port that serves as the lock."""
        return FIRST_PORT + self.number * BLOCK_SIZE

    def node(self, index: int) -> int:
        """Give the port of the slurmd with this index, counted from 0.

        These come first, so that another lab's search meets a running slurmd before it tries, for an instant, the port
        of a controller that a test has just killed.
        """
        if not 0 <= index < MAX_NODES:
            raise ValueError(f"a port block has no room for node number {index}")
        return self.base + 1 + index

    @property
    def controller(self) -> int:
        """Give the port of slurmctld."""
        return self.base + BLOCK_SIZE - 2

    @property
    def database_daemon(self) -> int:
        """Give the port of slurmdbd."""
        return self.base + BLOCK_SIZE - 1


@contextlib.contextmanager
def claim_block(is_usable: Callable[[PortBlock], bool]) -> Iterator[PortBlock]:
    """Hold the lock of the lowest free block; the caller's daemons must be listening before the lock is let go."""
    for number in range(BLOCK_COUNT):
        block = PortBlock(number=number)
        with contextlib.ExitStack() as held:
            if not _bind(block.base, held):
                continue
            if _are_free(range(block.base + 1, block.base + BLOCK_SIZE)) and is_usable(block):
                yield block
                return
    raise LabUnavailable(f"No free block of {BLOCK_SIZE} ports was found from port {FIRST_PORT} on.")


def free_port() -> int:
    """Name a port that is free now, for a server that is started at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _are_free(ports: range) -> bool:
    with contextlib.ExitStack() as held:
        return all(_bind(port, held) for port in ports)


def _bind(port: int, held: contextlib.ExitStack) -> bool:
    probe = held.enter_context(socket.socket())
    # Ports in TIME_WAIT of an ended lab are free for daemons, which set this option too. Two listeners still exclude
    # each other: a bound socket only shares its port while neither of the two listens.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("0.0.0.0", port))
        probe.listen(1)
    except OSError:
        return False
    return True
