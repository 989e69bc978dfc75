# SPDX-License-Identifier: Apache-2.0
"""Check that a sender may send a sample for a job, and name owner and node by what Slurm says."""

from __future__ import annotations

from collections.abc import Callable, Collection

from slurmscope.model.trace import JobOwner, TracedProcess, TraceSample
from slurmscope.outputs.http.request import HttpRequest
from slurmscope.services.trace.callers import Caller, CallerFinder
from slurmscope.services.trace.owners import OwnerFinder
from slurmscope.services.trace.refusal import Refusal

CheckSample = Callable[[Caller, TraceSample], TracedProcess]
"""Return a sample with owner and node, or raise Refusal."""


class SlurmCheck:
    """Check samples against the running jobs of the cluster."""

    def __init__(self, owners: OwnerFinder, privileged_uids: Callable[[], Collection[int]]) -> None:
        """Take where owners are found; privileged users may send samples for any job."""
        self._owners = owners
        self._privileged_uids = privileged_uids

    def __call__(self, caller: Caller, sample: TraceSample) -> TracedProcess:
        """Return the sample with owner and node, or raise Refusal."""
        if caller.job_id not in (None, sample.job_id):
            raise Refusal(403, "owner", f"The credential is not for job {sample.job_id}.")
        owner = self._owners.find(sample.job_id)
        if not self._may_send(caller, owner):
            raise Refusal(403, "owner", f"Job {owner.job_id} belongs to another user.")
        check_user(sample, owner.user)
        return TracedProcess(owner, self._find_node(caller, sample, owner), caller.way, sample)

    def _may_send(self, caller: Caller, owner: JobOwner) -> bool:
        if caller.uid is None or caller.uid == owner.uid:
            return True
        # A token is for the one user it names, also if that user is privileged.
        return caller.job_id is None and caller.uid in self._privileged_uids()

    def _find_node(self, caller: Caller, sample: TraceSample, owner: JobOwner) -> str:
        if caller.node is None:
            return self._owners.find_node(owner, sample.host) if sample.host else self._owners.single_node(owner)
        node = self._owners.find_node(owner, caller.node)
        if sample.host and not self._owners.is_host_of(node, sample.host):
            raise Refusal(409, "host", f"The credential is not for host {sample.host[:64]!a}.")
        return node


def is_quick(callers: CallerFinder, owners: OwnerFinder, request: HttpRequest) -> bool:
    """Return whether a post can be checked without waiting for Slurm or munged: it has the token of a known job."""
    job_id = callers.find_job(request)
    return job_id is not None and owners.is_known(job_id)


def check_user(sample: TraceSample, user: str) -> None:
    """Raise Refusal if a sample names another user than the owner."""
    if sample.user and sample.user != user:
        raise Refusal(403, "user", f"Job {sample.job_id} does not belong to this user name.")
