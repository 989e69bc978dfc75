# SPDX-License-Identifier: Apache-2.0
"""Run a private MariaDB or PostgreSQL that is reached by a socket, and kill, freeze and start it again.

Both know a user ``slurmscope`` with a password and a database ``archive``.
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import CommandFailed, LabUnavailable
from lab.mariadb import install_database, tmpdir_of
from lab.processes import Daemon, find_marked, kill_processes
from lab.requirements import SEARCH_PATH, find_program
from lab.supervisor import Supervisor
from lab.users import find_user

PASSWORD = "only for the lab"
POSTGRES_FOLDERS = Path("/usr/lib/postgresql")
COMMAND_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseServer:
    """Reach one server and do bad things to it."""

    url: str
    password_file: Path
    name: str
    marker: str
    supervisor: Supervisor
    is_ready: Callable[[], bool]

    def kill(self) -> None:
        """Kill the server and all its children, without a chance to tidy up."""
        children = list(find_marked(self.marker))
        self.supervisor.kill(self.name)
        kill_processes(children)

    def start(self) -> None:
        """Start the server again and wait until it lets people in."""
        self.supervisor.restart(self.name)
        self.supervisor.wait_ready(self.name, self.is_ready)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let the server keep its connections and answer nothing."""
        processes = list(find_marked(self.marker))
        try:
            for process in processes:
                process.send(signal.SIGSTOP)
            while not all(_is_stopped(process.pid) for process in processes):
                time.sleep(0.01)
            yield
        finally:
            for process in processes:
                process.send(signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    """Return whether every thread has stopped: one that runs on another core may answer a moment longer."""
    try:
        states = [file.read_text().rpartition(")")[2].split()[0] for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread or the process has ended meanwhile
        return not Path(f"/proc/{pid}").exists()
    return set(states) <= {"T", "t", "Z", "X"}


@contextlib.contextmanager
def run_mariadb(buffer_pool: str = "64M") -> Iterator[DatabaseServer]:
    """Run a MariaDB with a folder of its own."""
    if os.geteuid() != 0:
        raise LabUnavailable("The lab's MariaDB must be started by root.")
    program = find_program("mariadbd", "mariadb-server")
    client = find_program("mariadb", "mariadb-client")
    with _folder() as folder:
        install_database(folder / "data")
        path = folder / "socket"
        argv = (
            program, "--no-defaults", "--user=root", f"--datadir={folder}/data", f"--socket={path}",
            f"--tmpdir={tmpdir_of(folder / 'data')}", f"--pid-file={folder}/pid", "--skip-networking",
            f"--innodb-buffer-pool-size={buffer_pool}", "--innodb-flush-log-at-trx-commit=2",
        )  # fmt: skip
        url = f"mariadb://slurmscope@localhost/archive?unix_socket={path}"
        with _serve("mariadbd", argv, folder, lambda: _accepts(path), url) as server:
            statements = (
                "CREATE DATABASE archive; "
                f"CREATE USER slurmscope@localhost IDENTIFIED BY '{PASSWORD}'; "
                "GRANT ALL ON archive.* TO slurmscope@localhost;"
            )
            _run((client, "--no-defaults", f"--socket={path}", "--execute", statements))
            yield server


@contextlib.contextmanager
def run_postgresql(options: Sequence[str] = ()) -> Iterator[DatabaseServer]:
    """Run a PostgreSQL with a folder of its own, as the user that Debian's package makes for it.

    Options such as ``fsync=on`` replace those of the lab.
    """
    programs = _postgres_programs()
    with _folder() as folder:
        wrap = _as_postgres(folder)
        (folder / "password").chmod(0o644)
        initialize = (
            str(programs / "initdb"), f"--pgdata={folder}/data", "--username=slurmscope", "--auth=scram-sha-256",
            f"--pwfile={folder}/password", "--encoding=UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip
        _run((*wrap, *initialize))
        yield from _run_postgres(programs, wrap, folder, options)


@contextlib.contextmanager
def run_standby(primary: DatabaseServer) -> Iterator[DatabaseServer]:
    """Run a PostgreSQL that follows another one and accepts no writes; ``SELECT pg_promote()`` makes it a primary."""
    programs = _postgres_programs()
    with _folder() as folder:
        wrap = _as_postgres(folder)
        host = primary.url.partition("host=")[2]
        copy = (
            str(programs / "pg_basebackup"), f"--host={host}", "--username=slurmscope", f"--pgdata={folder}/data",
            "--write-recovery-conf", "--checkpoint=fast", "--no-sync",
        )  # fmt: skip
        _run((*wrap, "env", f"PGPASSWORD={PASSWORD}", *copy))
        yield from _run_postgres(programs, wrap, folder)


def _run_postgres(
    programs: Path, wrap: tuple[str, ...], folder: Path, options: Sequence[str] = ()
) -> Iterator[DatabaseServer]:
    argv = (
        *wrap, str(programs / "postgres"), "-D", f"{folder}/data", "-k", str(folder), "-c", "listen_addresses=",
        "-c", "fsync=off", "-c", "shared_buffers=32MB", *(part for option in options for part in ("-c", option)),
    )  # fmt: skip
    url = f"postgresql://slurmscope@/postgres?host={folder}"
    # The socket is there before a server that was killed has read its journal; this program distinguishes them.
    ask = (str(programs / "pg_isready"), "--quiet", f"--host={folder}")
    with _serve("postgres", argv, folder, lambda: _ends_well(ask), url) as server:
        yield server


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="slurm-lab-db-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "password").write_text(f"{PASSWORD}\n", encoding="utf-8")
        yield folder


@contextlib.contextmanager
def _serve(
    name: str, argv: tuple[str, ...], folder: Path, is_ready: Callable[[], bool], url: str
) -> Iterator[DatabaseServer]:
    mark = ("SLURM_LAB_DATABASE", str(folder))
    environment = {"PATH": SEARCH_PATH, "LC_ALL": "C", mark[0]: mark[1]}
    supervisor = Supervisor()
    server = DatabaseServer(
        url=url,
        password_file=folder / "password",
        name=name,
        marker="=".join(mark),
        supervisor=supervisor,
        is_ready=is_ready,
    )
    try:
        supervisor.start(Daemon(name=name, argv=argv, environment=environment, log_file=folder / "log"))
        supervisor.wait_ready(name, server.is_ready)
        yield server
    finally:
        supervisor.end([name])


def _postgres_programs() -> Path:
    for folder in sorted(POSTGRES_FOLDERS.glob("*/bin"), reverse=True):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise LabUnavailable("The program postgres is missing: apt-get install --no-install-recommends postgresql")


def _as_postgres(folder: Path) -> tuple[str, ...]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    try:
        user = find_user("postgres")
    except KeyError:
        raise LabUnavailable("The user postgres is missing: Debian's package postgresql adds it") from None
    os.chown(folder, user.uid, user.gid)
    return (find_program("setpriv", "util-linux"), f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups")


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(path)) == 0


def _ends_well(argv: tuple[str, ...]) -> bool:
    with contextlib.suppress(CommandFailed):
        _run(argv)
        return True
    return False


def _run(argv: tuple[str, ...]) -> None:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS,
        check=False, env={"PATH": SEARCH_PATH, "LC_ALL": "C"}, cwd="/",
    )  # fmt: skip
    if done.returncode != 0:
        raise CommandFailed(argv, done.returncode, done.stdout + done.stderr)
