# SPDX-License-Identifier: Apache-2.0
"""Bring a lab up, from an empty folder to idle nodes."""

import functools
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from lab import daemons, users
from lab.client import SlurmClient
from lab.config import GPUS_PER_NODE, Layout, render_configuration
from lab.mariadb import install_database
from lab.supervisor import Supervisor

Progress = Callable[[str], None]


def prepare_folder(layout: Layout) -> None:
    """Create, in the lab's folder, all folders and files that the daemons expect."""
    # Not subject to the caller's umask: the lab's users must reach the configuration and munge's socket.
    layout.folder.chmod(0o755)
    own = () if layout.first else ("munge", "users")
    for name in ("etc", "run", "log", "state", "spool", "devices", *own):
        (layout.folder / name).mkdir()
        (layout.folder / name).chmod(0o755)
    _write_configuration(layout)
    for index in range(GPUS_PER_NODE):
        _make_gpu(layout.gpu_file(index))
    if layout.first is None:
        key = layout.munge_socket.parent / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        users.provide_users(layout.users)


def _write_configuration(layout: Layout) -> None:
    for name, text in render_configuration(layout).items():
        path = layout.etc / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        # slurmdbd refuses a configuration that others can read.
        path.chmod(0o600 if name == "slurmdbd.conf" else 0o644)


def _make_gpu(path: Path) -> None:
    """Make a device that slurmd takes for a GPU; it is /dev/null under another name, which harms nobody."""
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        # In a container without that right; slurmd complains about a plain file and counts it all the same.
        path.touch()


def start_services(layout: Layout, supervisor: Supervisor, client: SlurmClient, progress: Progress) -> None:
    """Start the daemons in the order in which they need each other."""
    if layout.settings.has_accounting:
        start_accounting(layout, supervisor, client, progress)
    else:
        progress("starting munged")
        supervisor.start(daemons.munged(layout))
        wait_ready(layout, supervisor, daemons.MUNGED)
    progress("starting slurmctld and slurmd")
    start_cluster(layout, supervisor, client)
    progress(f"ready: idle nodes {', '.join(layout.nodes)}")


def start_cluster(layout: Layout, supervisor: Supervisor, client: SlurmClient) -> None:
    """Start controller and nodes, and wait until the nodes are idle."""
    supervisor.start(daemons.controller(layout))
    for node in layout.nodes:
        supervisor.start(daemons.node(layout, node))
    wait_ready(layout, supervisor, daemons.CONTROLLER, *map(daemons.node_daemon_name, layout.nodes))
    client.wait_idle()


def start_accounting(layout: Layout, supervisor: Supervisor, client: SlurmClient, progress: Progress) -> None:
    """Start what a controller needs, slurmdbd with the lab's users included."""
    progress("starting munged and MariaDB")
    supervisor.start(daemons.munged(layout))
    install_database(layout.folder / "mariadb")
    supervisor.start(daemons.mariadb(layout))
    wait_ready(layout, supervisor, daemons.MUNGED, daemons.MARIADB)
    progress("starting slurmdbd")
    supervisor.start(daemons.database_daemon(layout))
    wait_ready(layout, supervisor, daemons.DATABASE_DAEMON)
    register_cluster(layout, client)


def register_cluster(layout: Layout, client: SlurmClient) -> None:
    """Register a cluster and its users with slurmdbd."""
    client.run("sacctmgr", "-i", "add", "cluster", layout.cluster_name)
    users.register_users(client.run, layout.cluster_name)


def wait_ready(layout: Layout, supervisor: Supervisor, *names: str) -> None:
    """Wait until these daemons accept connections."""
    for name in names:
        supervisor.wait_ready(name, functools.partial(daemons.is_ready, layout, name))
