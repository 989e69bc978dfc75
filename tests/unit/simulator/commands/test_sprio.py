# SPDX-License-Identifier: Apache-2.0
"""The simulated sprio explains the priorities that the simulated squeue prints, and our parser reads it whole."""

from __future__ import annotations

from slurmscope.jobs.pending.facts import ARGUMENTS, parse_priorities
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands import sprio

CLUSTER = simulate(Shape(jobs=300, users=12, accounts=4), now=1_800_000_000)


def test_factors_add_up_to_the_priority_of_the_queue() -> None:
    code, answer, complaints = sprio.answer(CLUSTER, ARGUMENTS)
    assert (0, b"") == (code, complaints)
    found = parse_priorities(answer)
    waiting = {job.id: job for job in CLUSTER.jobs if job.state == "PENDING" and job.priority}
    assert 0 == found.unreadable_rows
    assert {(job.id, name) for job in waiting.values() for name in job.partitions} == {
        (one.job_id, one.partition) for one in found.priorities
    }
    for one in found.priorities:
        assert waiting[one.job_id].priority == one.total == sum(one.factors.values())


def test_wrong_usage_and_version_are_answered_like_other_commands() -> None:
    assert 1 == sprio.answer(CLUSTER, ["--nix"])[0]
    assert (0, b"slurm 22.05.8\n", b"") == sprio.answer(CLUSTER, ["-V"])
    _, answer, complaints = sprio.answer(CLUSTER, ["-o", "%i %x"])
    assert answer.startswith(b"JOBID %x\n")
    assert b"no such field: x" in complaints
