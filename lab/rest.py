# SPDX-License-Identifier: Apache-2.0
"""Run slurmrestd in front of a lab's controller, for as long as a test needs it.

It answers on a unix socket, to root and to the user it runs as; or on a loopback port, to those who have a token.
Tokens need a controller that knows them: start the lab with ``LabSettings(extra_lines=token_lines(key))``.
"""

import contextlib
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.daemons import marker
from lab.errors import LabUnavailable
from lab.ports import free_port
from lab.processes import Daemon
from lab.requirements import SEARCH_PATH, find_program
from lab.slurm import SlurmLab
from lab.supervisor import Supervisor
from lab.users import ALICE, find_user

NAME = "slurmrestd"
# slurmrestd refuses to run as root.
USER = ALICE
TOKEN_SECONDS = 600
# Without it, slurmrestd cuts the list of an array's tasks after 64 characters.
WHOLE_ARRAYS = {"SLURM_BITSTR_LEN": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestServer:
    """Reach a running slurmrestd."""

    url: str
    pid: int


@contextlib.contextmanager
def run_slurmrestd(lab: SlurmLab, environment: Mapping[str, str] = WHOLE_ARRAYS) -> Iterator[RestServer]:
    """Run a slurmrestd on a unix socket; root needs no token there."""
    # It makes the socket when it is no longer root.
    path = lab.layout.users / USER / f"{NAME}.sock"
    try:
        with _serve(lab, f"unix:{path}", "rest_auth/local", environment) as pid:
            yield RestServer(url=f"unix:{path}", pid=pid)
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def run_slurmrestd_with_tokens(lab: SlurmLab) -> Iterator[RestServer]:
    """Run a slurmrestd on a loopback port that lets nobody in without a token."""
    where = f"127.0.0.1:{free_port()}"
    # Without this variable it would speak to the controller by munge, which knows no tokens.
    with _serve(lab, where, "rest_auth/jwt", {**WHOLE_ARRAYS, "SLURM_JWT": "daemon"}) as pid:
        yield RestServer(url=f"http://{where}", pid=pid)


def token_lines(key: Path) -> tuple[str, ...]:
    """Write a key to an absent file, and give the lines of slurm.conf that make the controller accept its tokens."""
    folders = (Path("/usr/lib").glob("*/slurm-wlm"), Path("/usr/lib").glob("*/slurm"), Path("/usr").glob("lib*/slurm"))
    if not any((folder / "auth_jwt.so").exists() for found in folders for folder in found):
        raise LabUnavailable("Slurm has no tokens: apt-get install --no-install-recommends slurm-wlm-jwt-plugin")
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(32))
    return ("AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={key}")


def make_token(lab: SlurmLab, user: str) -> str:
    """Let the controller make a token for a user."""
    answer = lab.run("scontrol", "token", f"username={user}", f"lifespan={TOKEN_SECONDS}")
    return answer.strip().removeprefix("SLURM_JWT=")


@contextlib.contextmanager
def _serve(lab: SlurmLab, where: str, authentication: str, environment: Mapping[str, str]) -> Iterator[int]:
    user = find_user(USER)
    # Of the plugins, only those for the controller: those for slurmdbd want more of the configuration.
    versions = "openapi/v0.0.37,openapi/v0.0.38"
    argv = (find_program(NAME, NAME), "-u", user.name, "-g", str(user.gid), "-s", versions, "-a", authentication, where)
    mark, _, folder = marker(lab.folder).partition("=")
    daemon = Daemon(
        name=NAME,
        argv=argv,
        environment={"PATH": SEARCH_PATH, "LC_ALL": "C", mark: folder, **lab.environment, **environment},
        log_file=lab.folder / "log" / f"{NAME}.out",
    )
    supervisor = Supervisor()
    try:
        pid = supervisor.start(daemon).pid
        supervisor.wait_ready(NAME, lambda: _accepts(where))
        yield pid
    finally:
        supervisor.end([NAME])


def _accepts(where: str) -> bool:
    host, _, port = where.partition(":")
    is_unix = host == "unix"
    with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(port if is_unix else (host, int(port))) == 0
