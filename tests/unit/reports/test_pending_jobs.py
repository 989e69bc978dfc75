# SPDX-License-Identifier: Apache-2.0
"""A pending job is explained by commands that any user may run; what they hide is left out."""

from __future__ import annotations

from collections.abc import Sequence

from slurmscope.core.errors import CommandRefused
from slurmscope.jobs.pending.queue import COLUMNS
from slurmscope.reports.local_jobs import count_pending_tasks, explain_pending_job

_JOB = {
    "JobID": "12", "ArrayJobID": "12", "ArrayTaskID": "N/A", "HetJobID": "N/A", "HetJobOffset": "N/A",
    "UserName": "ada", "Account": "physics", "Partition": "batch", "QOS": "normal", "State": "PENDING",
    "Reason": "Priority", "SubmitTime": "1700000000", "EligibleTime": "1700000000", "StartTime": "N/A",
    "LastSchedEval": "N/A", "TimeLimit": "1:00:00", "NumNodes": "1", "NumCPUs": "4", "tres-alloc": "cpu=4,mem=1G",
    "PriorityLong": "10", "Dependency": "(null)", "Licenses": "matlab:2", "Reservation": "(null)",
    "Feature": "(null)", "SchedNodes": "(null)", "Name": "relax",
}  # fmt: skip
_LICENSES = b"LicenseName=matlab Total=56 Used=56 Free=0 Reserved=0 Remote=no\n"


class _Slurm:
    """Answer as squeue and scontrol do."""

    def __init__(self, *jobs: dict[str, str], private: str = "none") -> None:
        self.jobs = jobs
        self.private = private
        self.refuses_licenses = False

    def __call__(self, name: str, arguments: Sequence[str]) -> bytes:
        if name == "squeue":
            mark = next(word for word in arguments if word.startswith("--Format=")).rpartition(":")[2]
            mark = mark[: len(mark) // 2]
            return "".join(
                mark.join({**_JOB, **job}[c] for c in COLUMNS) + mark * 2 + "\n" for job in self.jobs
            ).encode()
        if arguments[-1] == "config":
            return f"ClusterName = lab\nPrivateData = {self.private}\nSlurmUser = slurm(64030)\n".encode()
        if arguments[-1] == "licenses" and not self.refuses_licenses:
            return _LICENSES
        raise CommandRefused((name, *arguments), "Access denied")


def test_unmet_license_is_the_reason_and_the_position_counts_jobs_ahead() -> None:
    slurm = _Slurm({}, {"JobID": "13", "ArrayJobID": "13", "PriorityLong": "99", "NumCPUs": "16", "Licenses": "(null)"})
    known = explain_pending_job(slurm, "12")

    assert known is not None
    assert "Licenses: 2 matlab licenses requested, 0 of 56 free." == known.meaning
    assert [(2, 2, 16)] == [(each.position, each.jobs, each.cores_ahead) for each in known.positions]


def test_position_is_unknown_where_jobs_of_others_are_hidden() -> None:
    known = explain_pending_job(_Slurm({}, private="jobs,usage"), "12", user="ada")

    assert known is not None
    assert () == known.positions
    assert "Priority" == known.reason


def test_what_cannot_be_read_is_left_out() -> None:
    slurm = _Slurm({})
    slurm.refuses_licenses = True
    known = explain_pending_job(slurm, "12")

    assert known is not None
    assert [("2 matlab licenses requested", None)] == [(blocker.text, blocker.is_met) for blocker in known.blockers]


def test_job_that_has_started_has_no_explanation() -> None:
    assert explain_pending_job(_Slurm(), "12") is None

    def refuse(name: str, arguments: Sequence[str]) -> bytes:
        raise CommandRefused((name,), "Unable to contact slurm controller")

    assert explain_pending_job(refuse, "12") is None
    assert count_pending_tasks(refuse, 12) is None


def test_pending_tasks_of_an_array_are_counted() -> None:
    slurm = _Slurm({"ArrayTaskID": "3-24%2"}, {"JobID": "40", "ArrayJobID": "40"})

    assert 22 == count_pending_tasks(slurm, 12)
    assert count_pending_tasks(slurm, 99) is None
    known = explain_pending_job(slurm, "12")
    assert known is not None
    assert "Priority" == known.reason
