# SPDX-License-Identifier: Apache-2.0
"""Read the script and the environment of a job that Slurm stored, with sacct.

Slurm stores them if AccountingStoreFlags of slurm.conf has ``job_script`` and ``job_env``. slurmdbd shows them to the
owner of the job and to operators. One job of one user is requested at a time: what follows the heading is their own
text, and a job ID that was used again for another user's job does not show that one.
"""

from __future__ import annotations

import re

from slurmscope.errors import CommandFailed
from slurmscope.sources.slurm.cluster_names import NAME
from slurmscope.sources.slurm.commands import RunCommand

COMMAND = "sacct"
LIMIT_BYTES = 256 * 1024
"""How much of a script is read; what users keep in scripts is far shorter, but programs also make some."""

_HEADING = re.compile(rb"[^\n]{1,200}\n-{20,200}\n")
_NONE = b"NONE"
_USER = re.compile(r"[A-Za-z0-9_.@+-]{1,256}")
"""Without a comma, which separates users."""
_UNKNOWN_OPTION = re.compile(r"unrecognized option|invalid option|unknown option", re.IGNORECASE)


def read_script(run: RunCommand, cluster: str, shown_id: str, user: str) -> tuple[str, bool] | None:
    """Return the script of a job and whether it was cut; None if Slurm did not store it, or does not show it."""
    body = _read(run, cluster, shown_id, user, "--batch-script")
    if body is None:
        return None
    return body[:LIMIT_BYTES].decode("utf-8", "replace"), len(body) > LIMIT_BYTES


def read_environment(run: RunCommand, cluster: str, shown_id: str, user: str) -> tuple[str, ...]:
    """Return the lines of the environment with which a job was submitted; none if it is not stored."""
    body = _read(run, cluster, shown_id, user, "--env-vars")
    return () if body is None else tuple(body[:LIMIT_BYTES].decode("utf-8", "replace").split("\n"))


def _read(run: RunCommand, cluster: str, shown_id: str, user: str, what: str) -> bytes | None:
    if not _USER.fullmatch(user) or not NAME.match(cluster):
        return None
    try:
        answer = run(COMMAND, (f"--clusters={cluster}", f"--user={user}", f"--jobs={shown_id}", what))
    except CommandFailed as error:
        if _UNKNOWN_OPTION.search(str(error)):  # before Slurm 21.08
            return None
        raise
    heading = _HEADING.match(answer)
    body = answer[heading.end() :] if heading else b""
    return None if body.strip() in {b"", _NONE} else body
