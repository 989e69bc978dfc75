# SPDX-License-Identifier: Apache-2.0
"""Check that this machine can run the lab, and say in one sentence what it lacks."""

import os
import shutil
from pathlib import Path

from lab.errors import LabUnavailable

# Daemons live in sbin, which is not on every user's PATH.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "useradd": "passwd",
}
# A unix socket's address has 108 bytes in Linux, its closing zero included.
MAX_SOCKET_PATH_BYTES = 107


def find_program(name: str, package: str) -> str:
    """Give the path of a program, or raise LabUnavailable naming its Debian package."""
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        raise LabUnavailable(f"The program {name} is missing: apt-get install --no-install-recommends {package}")
    return path


def check_machine() -> None:
    """Raise LabUnavailable unless we are root and all programs of a Slurm cluster are here."""
    if os.geteuid() != 0:
        raise LabUnavailable("The Slurm lab must be started by root, because its jobs run as several users.")
    missing = {package for name, package in PACKAGES.items() if shutil.which(name, path=SEARCH_PATH) is None}
    if missing:
        packages = " ".join(sorted(missing))
        raise LabUnavailable(f"Slurm is not installed here: apt-get install --no-install-recommends {packages}")


def check_folder(folder: Path, longest_socket: str) -> None:
    """Raise LabUnavailable unless every user can reach the folder, and its sockets have room for their names."""
    for parent in folder.resolve().parents:
        if parent.stat().st_mode & 0o001 == 0:
            raise LabUnavailable(f"The lab needs a folder that every user can reach, and {parent} is closed to others.")
    if len(os.fsencode(folder.resolve() / longest_socket)) > MAX_SOCKET_PATH_BYTES:
        raise LabUnavailable(f"The lab needs a folder with a shorter name than {folder}, for its unix sockets.")
