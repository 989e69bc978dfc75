# SPDX-License-Identifier: Apache-2.0
"""Prepare a database folder for a private MariaDB."""

import subprocess
from pathlib import Path

from lab.errors import CommandFailed
from lab.requirements import SEARCH_PATH, find_program

INSTALL_SECONDS = 60.0


def install_database(datadir: Path) -> None:
    """Create the system tables; the machine's root is the database's root, known by the socket, without a password."""
    argv = (
        find_program("mariadb-install-db", "mariadb-server"),
        "--no-defaults",
        "--user=root",
        f"--datadir={datadir}",
        "--auth-root-authentication-method=socket",
        "--skip-test-db",
        "--skip-name-resolve",
    )
    tmpdir_of(datadir).mkdir(parents=True)
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=INSTALL_SECONDS,
        check=False,
        env={"PATH": SEARCH_PATH, "LC_ALL": "C", "TMPDIR": str(tmpdir_of(datadir))},
    )
    if done.returncode != 0:
        raise CommandFailed(argv, done.returncode, done.stdout + done.stderr)


def tmpdir_of(datadir: Path) -> Path:
    """Name the folder of a server's temporary tables; a server that starts in a shared one removes those of others."""
    return datadir.with_name(f"{datadir.name}.tmp")
