# SPDX-License-Identifier: Apache-2.0
"""Describe the daemons of a Slurm cluster: how each is started and how one sees that it is ready."""

import socket
from pathlib import Path

from lab.config import Layout
from lab.mariadb import tmpdir_of
from lab.processes import Daemon
from lab.requirements import PACKAGES, SEARCH_PATH, find_program

MUNGED = "munged"
MARIADB = "mariadbd"
DATABASE_DAEMON = "slurmdbd"
CONTROLLER = "slurmctld"


def munged(layout: Layout) -> Daemon:
    """Describe a munged with a key, a socket and a log of its own."""
    home = layout.munge_socket.parent
    return _daemon(
        layout,
        MUNGED,
        # A private lab may lie below folders that are not root's, which munged refuses unless forced.
        "--force",
        "--foreground",
        f"--key-file={home}/key",
        f"--socket={layout.munge_socket}",
        f"--pid-file={home}/pid",
        f"--log-file={home}/log",
        f"--seed-file={home}/seed",
        "--num-threads=4",
    )


def mariadb(layout: Layout) -> Daemon:
    """Describe a MariaDB that is reached by its socket only and writes to disk as lazily as it can."""
    return _daemon(
        layout,
        MARIADB,
        "--no-defaults",
        "--user=root",
        f"--datadir={layout.folder}/mariadb",
        f"--tmpdir={tmpdir_of(layout.folder / 'mariadb')}",
        f"--socket={layout.database_socket}",
        f"--pid-file={layout.folder}/run/mariadbd.pid",
        "--skip-networking",
        "--innodb-buffer-pool-size=64M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-lock-wait-timeout=900",
    )


def database_daemon(layout: Layout) -> Daemon:
    """Describe slurmdbd."""
    return _daemon(layout, DATABASE_DAEMON, "-D")


def controller(layout: Layout) -> Daemon:
    """Describe slurmctld."""
    return _daemon(layout, CONTROLLER, "-D")


def node(layout: Layout, name: str) -> Daemon:
    """Describe the slurmd of one node."""
    return _daemon(layout, "slurmd", "-D", "-N", name, suffix=f"-{name}")


def node_daemon_name(node_name: str) -> str:
    """Name the daemon of a node."""
    return f"slurmd-{node_name}"


def marker(folder: Path) -> str:
    """Give the NAME=value by which the lab's daemons, and what they start, are found again.

    Commands do not get it: a user's editor that was started after `lab env` is not ours to end.
    """
    return f"SLURM_LAB_DAEMON_OF={folder}"


def is_ready(layout: Layout, name: str) -> bool:
    """Tell whether the daemon accepts connections.

    Asking for a connection is the only sure sign: a killed daemon leaves its unix socket behind.
    """
    if name == MUNGED:
        return _accepts(socket.AF_UNIX, str(layout.munge_socket))
    if name == MARIADB:
        return _accepts(socket.AF_UNIX, str(layout.database_socket))
    ports = {CONTROLLER: layout.block.controller, DATABASE_DAEMON: layout.block.database_daemon}
    ports |= {node_daemon_name(node): layout.block.node(index) for index, node in enumerate(layout.nodes)}
    return _accepts(socket.AF_INET, ("127.0.0.1", ports[name]))


def _accepts(family: socket.AddressFamily, address: str | tuple[str, int]) -> bool:
    with socket.socket(family) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(address) == 0


def _daemon(layout: Layout, program: str, *arguments: str, suffix: str = "") -> Daemon:
    name = program + suffix
    mark, _, value = marker((layout.first or layout).folder).partition("=")
    return Daemon(
        name=name,
        argv=(find_program(program, PACKAGES[program]), *arguments),
        environment={
            "PATH": SEARCH_PATH,
            "LC_ALL": "C",
            "SLURM_CONF": str(layout.slurm_conf),
            "MYSQL_UNIX_PORT": str(layout.database_socket),
            mark: value,
        },
        log_file=layout.folder / "log" / f"{name}.out",
    )
