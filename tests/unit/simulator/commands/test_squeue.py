# SPDX-License-Identifier: Apache-2.0
"""Check that the simulated squeue prints what the real one printed for the same jobs.

The expected texts were printed by squeue 22.05.8 for jobs that a real controller held; ``REAL_QUEUE`` describes them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurmscope.core.units import MIB
from slurmscope.simulator.cluster.records import SimulatedJob, User
from slurmscope.simulator.commands.lists import JOB_FIELDS

SUBMITTED = 1_794_730_774
BASE = SimulatedJob(
    id=0,
    name="wrap",
    user=User(name="root", uid=0, accounts=()),
    account=None,
    partitions=("debug",),
    qos="",
    state="PENDING",
    submit_time=SUBMITTED,
    priority=1,
)
SCATTERED = (
    *(1, 3, 5, 8, 10, 15, 17, 19, 22, 24, 26, 29, 31, 33, 35, 37, 41, 44, 46, 48, 50, 52, 57, 59, 61, 63),
    *(66, 67, 68, 69, *range(90, 151, 3)),
)  # fmt: skip


def job(number: int, mebibytes: int, **changes: Any) -> SimulatedJob:
    """Make a job of the real queue."""
    return replace(BASE, id=number, memory_per_node_bytes=mebibytes * MIB, **changes)


def running(number: int, mebibytes: int, node: str, **changes: Any) -> SimulatedJob:
    """Make a running job of the real queue, started a second after its submission."""
    start = {"state": "RUNNING", "node_names": (node,), "start_time": SUBMITTED + 1}
    return job(number, mebibytes, **{**start, **changes})


IN_ARRAY = {"account": "phys", "array_id": 3}
REAL_QUEUE = (
    running(7, 6144, "g1", partitions=("cloud",), state="CONFIGURING", cpus_per_node=2, time_limit_seconds=93_780),
    job(3, 10, **IN_ARRAY, tasks=tuple(range(4, 11)), task_limit=3, reason="JobArrayTaskLimit"),
    job(8, 1024, reason="Dependency", features="avx", licenses="matlab:2", dependency="afterok:1(unfulfilled)"),
    job(12, 10, array_id=12, tasks=(1, 2, 3), reason="JobHeldUser", priority=0, start_time=SUBMITTED + 3 * 86_400),
    job(11, 10, array_id=11, tasks=tuple(range(0, 1000, 2)), reason="JobHeldUser", priority=0),
    running(10, 2048, "n2", het_id=9, het_offset=1, cpus_per_node=2, start_time=SUBMITTED + 13),
    running(15, 10, "n1", **IN_ARRAY, tasks=(1,)),
    job(5, 1_536_000, partitions=("long",), state="FAILED", nodes=2, reason="BadConstraints", start_time=SUBMITTED),
)


def print_jobs(names: str, *jobs: SimulatedJob) -> list[str]:
    return ["|".join(JOB_FIELDS[name](each) for name in names.split()) for each in jobs]


def test_ids_and_sizes_are_those_of_the_real_command() -> None:
    names = "JobID ArrayJobID ArrayTaskID HetJobID HetJobOffset Account Partition State NumNodes NumCPUs tres-alloc"
    assert [
        "7|7|N/A|N/A|N/A|(null)|cloud|CONFIGURING|1|2|cpu=2,mem=6G,node=1,billing=2",
        "3|3|4-10%3|N/A|N/A|phys|debug|PENDING|1|1|cpu=1,mem=10M,node=1,billing=1",
        "8|8|N/A|N/A|N/A|(null)|debug|PENDING|1|1|cpu=1,mem=1G,node=1,billing=1",
        "12|12|1-3|N/A|N/A|(null)|debug|PENDING|1|1|cpu=1,mem=10M,node=1,billing=1",
        "11|11|0-998:2|N/A|N/A|(null)|debug|PENDING|1|1|cpu=1,mem=10M,node=1,billing=1",
        "10|10|N/A|9|1|(null)|debug|RUNNING|1|2|cpu=2,mem=2G,node=1,billing=2",
        "15|3|1|N/A|N/A|phys|debug|RUNNING|1|1|cpu=1,mem=10M,node=1,billing=1",
        "5|5|N/A|N/A|N/A|(null)|long|FAILED|2|2|cpu=2,mem=3000G,node=2,billing=2",
    ] == print_jobs(names, *REAL_QUEUE)


def test_times_and_texts_are_those_of_the_real_command() -> None:
    names = "JobID QOS SubmitTime StartTime TimeLimit PriorityLong NodeList Feature Licenses Dependency Reason"
    assert [
        "7|(null)|1794730774|1794730775|1-02:03:00|1|g1|(null)|(null)|(null)|None",
        "3|(null)|1794730774|N/A|UNLIMITED|1||(null)|(null)|(null)|JobArrayTaskLimit",
        "8|(null)|1794730774|N/A|UNLIMITED|1||avx|matlab:2|afterok:1(unfulfilled)|Dependency",
        "12|(null)|1794730774|1794989974|UNLIMITED|0||(null)|(null)|(null)|JobHeldUser",
    ] == print_jobs(names, *REAL_QUEUE[:4])


def test_long_index_lists_are_whole() -> None:
    whole = (
        "1,3,5,8,10,15,17,19,22,24,26,29,31,33,35,37,41,44,46,48,50,52,57,59,61,63,66-69,90,93,96,99,102,105,108,111,"
        "114,117,120,123,126,129,132,135,138,141,144,147,150"
    )
    assert [whole] == print_jobs("ArrayTaskID", job(20, 1, array_id=20, tasks=SCATTERED))


def test_gpus_are_spelled_in_many_ways() -> None:
    gpus = {"nodes": 2, "gpus_per_node": 4, "gpu_type": "a100"}
    assert [
        "cpu=2,mem=2G,node=2,billing=2,gres/gpu=8,gres/gpu:a100=8",
        "cpu=2,mem=2G,node=2,billing=2,gres/gpu=8",
        "cpu=2,mem=2G,node=2,billing=2,gres/gpu:a100=8",
    ] == print_jobs("tres-alloc", *(job(number, 1024, dialect=number, **gpus) for number in range(3)))
