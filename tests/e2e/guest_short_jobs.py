# SPDX-License-Identifier: Apache-2.0
"""Run short jobs in the guest, and return what was seen of them."""

from typing import Any

from lab import ALICE, SlurmLab
from slurmscope.node.exporter import TrackingOptions, open_job_tracker
from slurmscope.node.job_use import WHOLE_JOB
from slurmscope.node.tracker import STORM_SHARE
from tests.e2e.busy_job import PROGRAM

JOBS = 3
BUSY_SECONDS = 0.5
END_SECONDS = 30.0


def run_short_jobs(lab: SlurmLab) -> dict[str, Any]:
    """Look, let jobs come and go, and look again."""
    folder = lab.layout.users / ALICE
    (folder / "busy.py").write_text(PROGRAM, encoding="utf-8")
    # Emulated, everything costs fifty times as much.
    with open_job_tracker(TrackingOptions(storm_share=50 * STORM_SHARE)) as tracker:
        before = tracker.snapshot()
        script = f"exec python3 busy.py used-$SLURM_JOB_ID {BUSY_SECONDS}"
        jobs = []
        # One after the other: an emulated machine has enough to do with one of them.
        for _ in range(JOBS):
            jobs.append(lab.submit(ALICE, "--mem=100M", script=script))
            lab.wait_state(jobs[-1], {"COMPLETED"}, timeout=120.0)
        lab.wait_for(
            lambda: all(job.has_ended for job in tracker.snapshot().jobs), timeout=END_SECONDS, what="the jobs' end"
        )
        after = tracker.snapshot()
    uses = {job.key.job_id: job for job in after.jobs}
    seen = {
        job: {
            "has_ended": uses[job].has_ended,
            "cpu_seconds": uses[job].groups[WHOLE_JOB].cpu.total_seconds,
            "peak_bytes": uses[job].groups[WHOLE_JOB].memory.peak_bytes,
            "uid": uses[job].uid,
            "used_seconds": float((folder / f"used-{job}").read_text(encoding="utf-8")),
        }
        for job in jobs
        if job in uses and WHOLE_JOB in uses[job].groups
    }
    return {"before": len(before.jobs), "layout": after.layout, "available": dict(after.available), "jobs": seen}
