# SPDX-License-Identifier: Apache-2.0
"""Read owner, nodes and allocation of all running jobs: who may send trace samples for which job.

No column holds text that a user can choose freely, so no job can forge a row.
"""

from __future__ import annotations

from slurmscope.errors import MalformedAnswer
from slurmscope.model.trace import JobOwner, JobOwners
from slurmscope.tres import parse_tres

SEPARATOR = "\x1f"
COLUMNS = ("JobID", "UserID", "UserName", "Account", "State", "NodeList", "NumCPUs", "tres-alloc")
# States in which processes of a job may run.
STATES = ("running", "suspended", "completing")
ARGUMENTS = (
    "--noheader",
    "--all",
    "--array",
    "--local",
    f"--states={','.join(STATES)}",
    "--Format=" + "".join(f"{column}:{SEPARATOR}," for column in COLUMNS[:-1]) + f"{COLUMNS[-1]}:",
)
_NOTHING = frozenset({"", "N/A", "(null)"})


def parse_owners(answer: bytes) -> JobOwners:
    """Parse the output of squeue; an invalid row is counted and skipped."""
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("squeue: the answer ends in the middle of a line")
    rows = answer.decode("utf-8", "surrogateescape").split("\n")[:-1]
    jobs: dict[int, JobOwner] = {}
    unreadable_rows = 0
    for row in rows:
        try:
            owner = _parse_row(row.split(SEPARATOR))
        except ValueError:
            unreadable_rows += 1
        else:
            jobs[owner.job_id] = owner
    return JobOwners(jobs, unreadable_rows)


def _parse_row(fields: list[str]) -> JobOwner:
    job_id, uid, user, account, state, nodes, cpus, tres = fields
    return JobOwner(
        job_id=int(job_id),
        uid=int(uid),
        user=user,
        account="" if account in _NOTHING else account,
        state=state,
        node_list="" if nodes in _NOTHING else nodes,
        cpus=int(cpus),
        memory_bytes=parse_tres(tres).memory_bytes,
    )
