# SPDX-License-Identifier: Apache-2.0
"""Provide the people of the lab: Unix users, their accounts, their working folders.

The Unix users are added to the machine when they are missing and stay there: several labs share them.
"""

import contextlib
import fcntl
import os
import pwd
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import CommandFailed
from lab.requirements import find_program

ALICE = "labalice"
BOB = "labbob"
CAROL = "labcarol"
# The first account is the user's default.
ACCOUNTS_OF = {ALICE: ("physics",), BOB: ("chemistry",), CAROL: ("physics", "chemistry")}
ACCOUNTS = ("physics", "chemistry")
LOCK = Path("/run/slurm-lab-users.lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixUser:
    """Hold what is needed to run a program as someone."""

    name: str
    uid: int
    gid: int


def find_user(name: str) -> UnixUser:
    """Look a user up; raise KeyError when there is none of this name."""
    entry = pwd.getpwnam(name)
    return UnixUser(name=name, uid=entry.pw_uid, gid=entry.pw_gid)


def provide_users(folder: Path) -> None:
    """Add the missing Unix users and give each a working folder below this one."""
    with _one_at_a_time():
        users = [_provide_user(name) for name in ACCOUNTS_OF]
    for user in users:
        workdir = folder / user.name
        workdir.mkdir(mode=0o755, parents=True, exist_ok=True)
        os.chown(workdir, user.uid, user.gid)


def register_users(run: Callable[..., str], cluster: str) -> None:
    """Register accounts and users of a cluster with the accounting database."""
    where = f"Cluster={cluster}"
    run("sacctmgr", "-i", "add", "account", ",".join(ACCOUNTS), "Organization=lab", where)
    for name, accounts in ACCOUNTS_OF.items():
        of_account = f"Account={','.join(accounts)}", f"DefaultAccount={accounts[0]}"
        run("sacctmgr", "-i", "add", "user", name, *of_account, where)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait for other labs: useradd twice at once leaves a user with another number than the one it reported."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _provide_user(name: str) -> UnixUser:
    try:
        return find_user(name)
    except KeyError:
        _add_user(name)
    return find_user(name)


def _add_user(name: str) -> None:
    argv = [find_program("useradd", "passwd"), "--no-create-home", "--no-user-group", "--shell", "/bin/sh", name]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise CommandFailed(argv, done.returncode, done.stderr)
