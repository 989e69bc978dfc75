# SPDX-License-Identifier: Apache-2.0
"""Check that the simulated squeue prints what the real one printed for the same jobs.

The expected rows were printed by squeue 22.05.8 for jobs that a real controller held; ``real_queue`` describes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Partition, Shape, SimulatedCluster, SimulatedJob, User
from slurmscope.simulator.cluster.texts import MIB
from slurmscope.simulator.commands import squeue

SUBMITTED = 1_794_730_774
NOW = SUBMITTED + 19

ROOT = User(name="root", uid=0, accounts=())
BASE = SimulatedJob(
    id=0,
    name="wrap",
    user=ROOT,
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


def cluster_of(*jobs: SimulatedJob) -> SimulatedCluster:
    """Make a cluster of nothing but jobs."""
    partition = Partition(name="debug", is_default=True, time_limit_seconds=None, node_names=())
    return SimulatedCluster(
        name="real", now=NOW, jobs=jobs, nodes=(), partitions=(partition,), users=(ROOT,), accounts=(), qos=()
    )


@pytest.fixture(scope="module")
def real_queue() -> SimulatedCluster:
    in_cloud = {"partitions": ("cloud",), "state": "CONFIGURING"}
    in_array = {"account": "phys", "array_id": 3}
    a_day = 26 * 3600 + 180
    return cluster_of(
        running(6, 2048, "g1", **in_cloud, time_limit_seconds=1800, end_time=SUBMITTED + 1801),
        running(7, 6144, "g1", **in_cloud, cpus_per_node=2, is_memory_per_cpu=True, time_limit_seconds=a_day,
                end_time=SUBMITTED + 1 + a_day),
        job(3, 10, **in_array, tasks=tuple(range(4, 11)), task_limit=3, reason="JobArrayTaskLimit"),
        job(8, 1024, reason="Dependency", features="avx", licenses="matlab:2", dependency="afterok:1(unfulfilled)"),
        job(12, 10, array_id=12, tasks=(1, 2, 3), reason="JobHeldUser", priority=0, start_time=SUBMITTED + 3 * 86_400),
        job(11, 10, array_id=11, tasks=tuple(range(0, 1000, 2)), reason="JobHeldUser", priority=0),
        running(9, 1024, "n1", het_id=9, het_offset=0, start_time=SUBMITTED + 13),
        running(10, 2048, "n2", het_id=9, het_offset=1, cpus_per_node=2, start_time=SUBMITTED + 13),
        running(2, 100, "n1", account="phys", name='evil\nname|x"\x1b[31m'),
        running(15, 10, "n1", **in_array, tasks=(1,)),
        job(5, 1_536_000, partitions=("long",), state="FAILED", nodes=2, reason="BadConstraints", start_time=SUBMITTED,
            end_time=SUBMITTED, exit_status=1),
    )  # fmt: skip


def rows(cluster: SimulatedCluster, *argv: str, **environment: str) -> list[str]:
    """Run the command and split its output at newlines."""
    code, out, complaints = squeue.answer(cluster, ["-h", *argv], environment)
    assert (0, b"") == (code, complaints)
    return out.decode().split("\n")[:-1]


def test_fixed_columns_are_those_of_the_real_command(real_queue: SimulatedCluster) -> None:
    fields = (
        "JobID:|,JobArrayID:|,ArrayJobID:|,ArrayTaskID:|,HetJobID:|,HetJobOffset:|,Account:|,UserName:|,Partition:|,State:|,"
        "StateCompact:|,NumNodes:|,NumCPUs:|,tres-alloc:|,ReasonList:"
    )
    assert [
        "6|6|6|N/A|N/A|N/A|(null)|root|cloud|CONFIGURING|CF|1|1|cpu=1,mem=2G,node=1,billing=1|g1",
        "7|7|7|N/A|N/A|N/A|(null)|root|cloud|CONFIGURING|CF|1|2|cpu=2,mem=6G,node=1,billing=2|g1",
        "3|3_[4-10%3]|3|4-10%3|N/A|N/A|phys|root|debug|PENDING|PD|1|1|cpu=1,mem=10M,node=1,billing=1|(JobArrayTaskLimit)",
        "8|8|8|N/A|N/A|N/A|(null)|root|debug|PENDING|PD|1|1|cpu=1,mem=1G,node=1,billing=1|(Dependency)",
        "12|12_[1-3]|12|1-3|N/A|N/A|(null)|root|debug|PENDING|PD|1|1|cpu=1,mem=10M,node=1,billing=1|(JobHeldUser)",
        "11|11_[0-998:2]|11|0-998:2|N/A|N/A|(null)|root|debug|PENDING|PD|1|1|cpu=1,mem=10M,node=1,billing=1|(JobHeldUser)",
        "9|9+0|9|N/A|9|0|(null)|root|debug|RUNNING|R|1|1|cpu=1,mem=1G,node=1,billing=1|n1",
        "10|9+1|10|N/A|9|1|(null)|root|debug|RUNNING|R|1|2|cpu=2,mem=2G,node=1,billing=2|n2",
        "2|2|2|N/A|N/A|N/A|phys|root|debug|RUNNING|R|1|1|cpu=1,mem=100M,node=1,billing=1|n1",
        "15|3_1|3|1|N/A|N/A|phys|root|debug|RUNNING|R|1|1|cpu=1,mem=10M,node=1,billing=1|n1",
        "5|5|5|N/A|N/A|N/A|(null)|root|long|FAILED|F|2|2|cpu=2,mem=3000G,node=2,billing=2|(BadConstraints)",
    ] == rows(real_queue, "-a", "--states=all", "-O", fields)


def test_the_reason_has_its_own_column(real_queue: SimulatedCluster) -> None:
    assert ["8|Dependency", "10|None"] == rows(real_queue, "-j8,10", "-O", "JobID:|,Reason:")


def test_times_and_texts_are_those_of_the_real_command(real_queue: SimulatedCluster) -> None:
    fields = (
        "JobID:|,QOS:|,Name:|,SubmitTime:|,StartTime:|,EndTime:|,TimeUsed:|,TimeLimit:|,TimeLeft:|,PriorityLong:|,NodeList:|,"
        "Feature:|,RestartCnt:|,Licenses:|,MinMemory:|,Dependency:|,PendingTime:|,exit_code:"
    )
    printed = rows(real_queue, "-j", "2,3,5,7,8,12", "-t", "all", "-O", fields, SLURM_TIME_FORMAT="%s")
    assert [
        "7|(null)|wrap|1794730774|1794730775|1794824555|0:18|1-02:03:00|1-02:02:42|1|g1|(null)|0|(null)|3G|(null)|1|0",
        "3|(null)|wrap|1794730774|N/A|N/A|0:00|UNLIMITED|UNLIMITED|1||(null)|0|(null)|10M|(null)|19|0",
        "8|(null)|wrap|1794730774|N/A|N/A|0:00|UNLIMITED|UNLIMITED|1||avx|0|matlab:2|1G|afterok:1(unfulfilled)|19|0",
        "12|(null)|wrap|1794730774|1794989974|NONE|0:00|UNLIMITED|UNLIMITED|0||(null)|0|(null)|10M|(null)|19|0",
        "2|(null)|evil",
        'name|x"\x1b[31m|1794730774|1794730775|NONE|0:18|UNLIMITED|UNLIMITED|1|n1|(null)|0|(null)|100M|(null)|1|0',
        "15|(null)|wrap|1794730774|1794730775|NONE|0:18|UNLIMITED|UNLIMITED|1|n1|(null)|0|(null)|10M|(null)|1|0",
        "5|(null)|wrap|1794730774|1794730774|1794730774|0:00|UNLIMITED|UNLIMITED|1||(null)|0|(null)|1500G|(null)|0|1",
    ] == printed


def test_every_task_of_a_pending_array_has_a_row_with_r(real_queue: SimulatedCluster) -> None:
    assert [
        "3|3_4|3|4",
        "3|3_5|3|5",
        "3|3_6|3|6",
        "3|3_7|3|7",
        "3|3_8|3|8",
        "3|3_9|3|9",
        "3|3_10|3|10",
        "15|3_1|3|1",
    ] == rows(real_queue, "-a", "-r", "-j3", "-O", "JobID:|,JobArrayID:|,ArrayJobID:|,ArrayTaskID:")


def test_rows_of_an_array_are_repeated_when_no_column_names_the_task(real_queue: SimulatedCluster) -> None:
    assert ["3 PENDING"] * 7 + ["15 RUNNING"] == rows(real_queue, "-r", "-j3", "-o", "%A %T")


def test_the_default_listing_has_the_columns_of_the_real_one(real_queue: SimulatedCluster) -> None:
    code, out, _ = squeue.answer(real_queue, [])
    header, first, _, third, *_ = out.decode().split("\n")
    assert code == 0
    assert "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)" == header
    assert "                 6     cloud     wrap     root CF       0:18      1 g1" == first
    assert "        3_[4-10%3]     debug     wrap     root PD       0:00      1 (JobArrayTaskLimit)" == third


# What the real command printed for -O with these fields, for a job 1 that was named "plain" and ran.
@pytest.mark.parametrize(
    ("fields", "printed"),
    [
        ("JobID", "1                   "),
        ("JobID:,Name:", "1plain"),
        ("JobID:5abc,Name:.12|x,State:ab:cd|,Partition:.x", "1    abc       plain|xRUNNINGab:cd|debugx"),
        ("JobID:5,Name:.12,State:2", "1           plainRU"),
        ("JobID:a b%s%d,Name:\\n", "1a b%s%dplain\\n"),
        ("jobid:€x 9,NAME:|", "1€x 9plain|"),
        ("JobID:|,,Name:|,", "1|plain|"),
        ("", ""),
    ],
)
def test_widths_and_suffixes_are_those_of_the_real_command(fields: str, printed: str) -> None:
    assert [printed] == rows(cluster_of(running(1, 200, "n1", name="plain")), "-O", fields)


def test_widths_cut_bytes_not_characters() -> None:
    name = b"b\xff\xfe\xc3\xa9\xc3\xa9-end"
    cluster = cluster_of(job(18, 1, name=name.decode("utf-8", "surrogateescape")))
    _, out, _ = squeue.answer(cluster, ["-h", "-O", "Name:4|,Name:.12|,Name:|"])
    assert b"b\xff\xfe\xc3| b\xff\xfe\xc3\xa9\xc3\xa9-end|b\xff\xfe\xc3\xa9\xc3\xa9-end|\n" == out


# Printed by the real command for the same array, with SLURM_BITSTR_LEN unset, 20 and 0.
@pytest.mark.parametrize(
    ("length", "printed"),
    [
        (None, "20_[1,3,5,8,10,15,17,19,22,24,2|1,3,5,8,10,15,17,19,22,24,26,29,31,33,35,37,41,44,46,48,50,5...%2"),
        ("20", "20_[1,3,5,8,10,15,17...%2]|1,3,5,8,10,15,17...%2"),
    ],
)
def test_long_index_lists_are_cut_like_the_real_ones(length: str | None, printed: str) -> None:
    cluster = cluster_of(job(20, 1, array_id=20, tasks=SCATTERED, task_limit=2))
    environment = {} if length is None else {"SLURM_BITSTR_LEN": length}
    assert [printed] == rows(cluster, "-O", "JobArrayID:|,ArrayTaskID:", **environment)


def test_long_index_lists_are_whole_when_no_length_is_wanted() -> None:
    cluster = cluster_of(job(20, 1, array_id=20, tasks=SCATTERED))
    whole = (
        "1,3,5,8,10,15,17,19,22,24,26,29,31,33,35,37,41,44,46,48,50,52,57,59,61,63,66-69,90,93,96,99,102,105,108,111,"
        "114,117,120,123,126,129,132,135,138,141,144,147,150"
    )
    assert [f"20_[{whole}]|{whole}"] == rows(cluster, "-O", "JobArrayID:|,ArrayTaskID:", SLURM_BITSTR_LEN="0")


def test_times_are_local_unless_seconds_are_asked_for() -> None:
    local = datetime.fromtimestamp(SUBMITTED, UTC).astimezone().replace(tzinfo=None).isoformat()
    cluster = cluster_of(job(1, 1))
    assert [f"{local}|N/A"] == rows(cluster, "-O", "SubmitTime:|,StartTime:")
    assert [local[:4]] == rows(cluster, "-O", "SubmitTime:", SLURM_TIME_FORMAT="%Y")


def test_a_line_of_json_can_be_asked_for(real_queue: SimulatedCluster) -> None:
    text = '{"a": "%a", "id": %A, "u": "%u", "state": "%T", "cpu": %C, "mem": "%m", "array_id": "%K", "r": "%R"}'
    printed = (
        '{"a": "(null)", "id": 8, "u": "root", "state": "PENDING", "cpu": 1, "mem": "1G", "array_id": "N/A", '
        '"r": "(Dependency)"}'
    )
    assert [printed] == rows(real_queue, "-j8", "-o", text)


def test_without_states_only_unfinished_jobs_are_listed() -> None:
    states = [
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "COMPLETING",
        "CONFIGURING",
        "STAGE_OUT",
        "COMPLETED",
        "FAILED",
        "TIMEOUT",
    ]
    cluster = cluster_of(*(job(number, 1, state=state) for number, state in enumerate(states, 1)))
    assert states[:6] == rows(cluster, "-o", "%T")
    assert states == rows(cluster, "-t", "ALL", "-o", "%T")
    assert ["PENDING", "TIMEOUT"] == rows(cluster, "--states=pd,TIMEOUT", "-o", "%T")


def test_filters_are_joined() -> None:
    bob = User(name="bob", uid=1, accounts=())
    cluster = cluster_of(
        job(1, 1, account="a"),
        job(2, 1, account="b", user=bob),
        job(3, 1, account="a", user=bob, partitions=("x", "y")),
    )
    assert ["2", "3"] == rows(cluster, "-u", "bob", "-o", "%i")
    assert ["3"] == rows(cluster, "--user=bob", "--account=a,c", "-o", "%i")
    assert ["3"] == rows(cluster, "-p", "y", "-o", "%i")


# Seen: the real command complains on stderr, prints an empty column and exits with 0.
def test_an_unknown_field_costs_a_complaint_and_an_empty_column(real_queue: SimulatedCluster) -> None:
    code, out, complaints = squeue.answer(real_queue, ["-h", "-j8", "-O", "JobID:|,Bogus:|,State:|"])
    assert (0, b"8||PENDING|\n") == (code, out)
    assert b"Bogus" in complaints


def test_an_unknown_letter_is_printed_as_typed(real_queue: SimulatedCluster) -> None:
    code, out, complaints = squeue.answer(real_queue, ["-h", "-j8", "-o", "%i %!|%%"])
    assert (0, b"8 %!|%\n") == (code, out)
    assert b"!" in complaints


@pytest.mark.parametrize(
    "argv", [["--bogus"], ["-t", "bogus"], ["-t", "all,PD"], ["-o", "%i", "-O", "JobID"], ["extra"], ["-O"]]
)
def test_wrong_usage_exits_with_1_and_prints_nothing(real_queue: SimulatedCluster, argv: Sequence[str]) -> None:
    code, out, complaints = squeue.answer(real_queue, argv)
    assert (1, b"") == (code, out)
    assert complaints.startswith(b"squeue: error: ")


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_told(real_queue: SimulatedCluster, option: str) -> None:
    assert (0, b"slurm 22.05.8\n", b"") == squeue.answer(real_queue, [option])


# The fifth spelling asks for GPUs of the whole job instead.
def test_gpus_are_spelled_in_many_ways() -> None:
    gpus = {"nodes": 2, "gpus_per_node": 4, "gpu_type": "a100"}
    cluster = cluster_of(*(job(number, 1024, dialect=number, **gpus) for number in range(5)), job(5, 1024))
    assert ["gpu:a100:4", "gres:gpu:a100:4", "gres/gpu:a100:4", "gres/gpu:a100=4", "N/A", "N/A"] == rows(
        cluster, "-o", "%b"
    )
    assert ["N/A"] * 4 + ["gres:gpu:8", "N/A"] == rows(cluster, "-O", "tres-per-job:")
    allocations = rows(cluster, "-O", "tres-alloc:")
    assert "cpu=2,mem=2G,node=2,billing=2,gres/gpu=8,gres/gpu:a100=8" == allocations[0]
    assert "cpu=2,mem=2G,node=2,billing=2,gres/gpu=8" == allocations[1]
    assert "cpu=2,mem=2G,node=2,billing=2,gres/gpu:a100=8" == allocations[2]


@given(
    st.lists(st.text(st.characters(exclude_characters="\0\x1e", exclude_categories=["Cs"]), max_size=30), max_size=8)
)
@settings(deadline=None, max_examples=50)
def test_no_name_can_forge_a_column_of_a_random_separator(names: list[str]) -> None:
    separator = "\x1e5Kq\x1e"
    cluster = cluster_of(*(job(number, 1, name=name) for number, name in enumerate(names)))
    _, out, _ = squeue.answer(cluster, ["-h", "-O", f"JobID:{separator},Name:{separator},State:{separator}"])
    cells = out.decode().split(separator)
    assert [str(number) for number in range(len(names))] == [cell.removeprefix("\n") for cell in cells[:-1:3]]
    assert names == cells[1::3]


def test_hostile_names_of_a_simulated_cluster_stay_in_their_column() -> None:
    cluster = simulate(Shape(), now=NOW)
    separator = b"\x02Zq81\x02"
    fields = "".join(f"{name}:{separator.decode()}," for name in ("JobID", "Name", "Account", "State", "WorkDir"))
    _, out, _ = squeue.answer(cluster, ["-h", "-a", "-t", "all", "-O", fields])
    cells = out.split(separator)
    assert 5 * len(cluster.jobs) + 1 == len(cells)
    assert [job.name.encode("utf-8", "surrogateescape") for job in cluster.jobs] == cells[1::5]
    assert [job.state.encode() for job in cluster.jobs] == cells[3::5]
