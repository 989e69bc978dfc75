# SPDX-License-Identifier: Apache-2.0
"""Read jobs one by one, with names that their users chose.

Such a name may contain a newline, or text like another job's row. Columns and rows are therefore
separated by a random text that is new for every call: it cannot occur in a name.
"""

from __future__ import annotations

from slurmscope.errors import MalformedAnswer
from slurmscope.model.jobs import JobList, ListedJob
from slurmscope.tres import parse_tres

COLUMNS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "UserName", "Account", "Partition", "QOS", "State", "NodeList",
    "NumCPUs", "tres-alloc", "Name",
)  # fmt: skip
_NOTHING = frozenset({"", "N/A", "(null)"})


def arguments(separator: str) -> tuple[str, ...]:
    """Return the arguments of one call; a row ends with the mark twice."""
    mark = _mark(separator)
    columns = ",".join(f"{column}:{mark}" for column in COLUMNS)
    return ("--noheader", "--all", "--states=all", "--local", f"--Format={columns}{mark}")


def parse_job_list(answer: bytes, separator: str) -> JobList:
    """Split rows and columns by the separator alone; an invalid row is counted and skipped."""
    text = answer.decode("utf-8", "surrogateescape")
    mark = _mark(separator)
    rows = text.split(f"{mark}{mark}\n")
    if rows.pop():
        raise MalformedAnswer("squeue: the answer ends in the middle of a row")
    jobs: list[ListedJob] = []
    for row in rows:
        try:
            jobs.append(_parse_row(row.split(mark)))
        except ValueError:
            continue
    return JobList(tuple(jobs), len(rows) - len(jobs))


def _mark(separator: str) -> str:
    # Begins with a byte that is nowhere else in it, so the end of a name can never be taken for its beginning.
    return f"\x1f{separator}"


def _parse_row(fields: list[str]) -> ListedJob:
    job_id, array_job_id, array_tasks, het_job_id, user, account, partition, qos, state, nodes, cpus, tres, name = (
        fields
    )
    is_array = array_tasks not in _NOTHING
    return ListedJob(
        job_id=str(int(job_id)),
        array_job_id=array_job_id if is_array else "",
        array_tasks=array_tasks if is_array else "",
        het_job_id="" if het_job_id in _NOTHING or het_job_id == "0" else het_job_id,
        user=user,
        account=account,
        partition=partition,
        qos=qos,
        state=state,
        node_list=nodes,
        name=name,
        cpus=int(cpus),
        memory_bytes=parse_tres(tres).memory_bytes,
    )
