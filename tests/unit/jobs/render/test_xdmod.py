# SPDX-License-Identifier: Apache-2.0
"""Lines for XDMoD are read by a parser with the rules of its Slurm shredder: columns, times, states, TRES, arrays."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.tres import Gres
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.render.xdmod import render_xdmod_line
from tests.fakes.reports import GIB, START, make_record

NAMES = (
    "job_id", "job_id_raw", "cluster_name", "partition_name", "qos_name", "account_name", "group_name", "gid_number",
    "user_name", "uid_number", "submit_time", "eligible_time", "start_time", "end_time", "elapsed", "exit_code",
    "state", "nnodes", "ncpus", "req_cpus", "req_mem", "req_tres", "alloc_tres", "timelimit", "node_list", "job_name",
)  # fmt: skip
"""The columns of its table that it fills, in the order of the line."""
ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "PREEMPTED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE",
    "REVOKED",
}  # fmt: skip


def shred(line: str) -> dict[str, object]:
    """Read a line as the shredder does; an assertion fails where it would skip the job or report an error."""
    cells = line.split("|", len(NAMES) - 1)
    assert len(NAMES) == len(cells)
    job: dict[str, object] = dict(zip(NAMES, cells, strict=True))
    text = dict(zip(NAMES, cells, strict=True))
    assert "." not in text["job_id"]
    assert text["state"].split(" ")[0] in ENDED
    assert text["node_list"] != "None assigned"
    for name in ("submit_time", "eligible_time", "start_time", "end_time"):
        job[name] = read_time(text[name])
    for name in ("elapsed", "timelimit"):
        job[name] = read_duration(text[name])
    job["ngpus"] = count_gpus(text["alloc_tres"])
    number, _, task = text["job_id"].partition("_")
    job["job_id"], job["job_array_index"] = number, int(task) if task else -1
    return job


def read_time(text: str) -> int | None:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d", text):
        return None
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp())


def read_duration(text: str) -> int | None:
    found = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)(?:\.\d+)?", text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def count_gpus(text: str) -> int:
    """Only the first entry counts."""
    for entry in text.split(","):
        name, _, amount = entry.partition("=")
        if name == "gres/gpu" or name.startswith("gres/gpu:"):
            return int(amount)
    return 0


def line_of(record: JobRecord) -> str:
    return render_xdmod_line(record, gid="100", group="users")


def test_whole_line_of_a_job() -> None:
    record = make_record(
        12, nodes=("n1", "n2"), node_count=2, requested_cpus=3, billing=6, consumed_joules=900,
        submit_seconds=1_769_903_400, eligible_seconds=1_769_903_401, start_seconds=1_769_904_000,
        end_seconds=1_770_083_405, suspended_seconds=5, exit_code=1, exit_signal=9, state="FAILED",
        gres=(Gres(name="gpu", model="a100", count=2), Gres(name="gpu", count=1)),
    )  # fmt: skip

    assert (
        "12|12|lab|batch|normal|physics|users|100|ada|1001|2026-01-31T23:50:00|2026-01-31T23:50:01|2026-02-01T00:00:00|"
        "2026-02-03T01:50:05|2-01:50:00|1:9|FAILED|2|4|3|||"
        "billing=6,cpu=4,energy=900,gres/gpu=3,gres/gpu:a100=2,mem=8G,node=2|1-00:00:00|n1,n2|relax"
    ) == line_of(record)


def test_times_and_durations_are_read_again() -> None:
    job = shred(line_of(make_record()))

    assert (START - 600, START - 600, START, START + 7200) == (
        job["submit_time"], job["eligible_time"], job["start_time"], job["end_time"],
    )  # fmt: skip
    assert (7200, 24 * 3600) == (job["elapsed"], job["timelimit"])


def test_gpus_of_all_models_are_counted() -> None:
    gres = (Gres(name="gpu", model="v100", count=1), Gres(name="gpu", model="a100", count=4))

    assert 5 == shred(line_of(make_record(gres=gres)))["ngpus"]
    assert 0 == shred(line_of(make_record()))["ngpus"]


def test_task_of_an_array_has_its_index_and_its_own_id() -> None:
    job = shred(line_of(make_record(4711, array_job_id=4700, array_task_id=3)))

    assert ("4700", 3, "4711") == (job["job_id"], job["job_array_index"], job["job_id_raw"])
    assert -1 == shred(line_of(make_record()))["job_array_index"]


def test_cancelled_job_names_who_cancelled_it() -> None:
    assert "CANCELLED by 0" == shred(line_of(make_record(state="CANCELLED", cancelled_by_uid=0)))["state"]
    assert "CANCELLED" == shred(line_of(make_record(state="CANCELLED")))["state"]


def test_unknown_values_are_empty_and_no_limit_is_unlimited() -> None:
    cells = line_of(make_record(uid=None, cpus=None, memory_bytes=None, exit_code=None, time_limit_seconds=None)).split(
        "|"
    )

    assert ["", "", "", "", "node=1"] == [cells[NAMES.index(name)] for name in (
        "uid_number", "ncpus", "req_cpus", "exit_code", "alloc_tres",
    )]  # fmt: skip
    assert "UNLIMITED" == cells[NAMES.index("timelimit")]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (GIB, "mem=1G"),
        (48_000 << 20, "mem=48000M"),
        (100 << 20, "mem=100M"),
        (1 << 50, "mem=1P"),
        (1 << 60, "mem=1024P"),
    ],
)
def test_memory_has_the_largest_unit_without_a_fraction(size_bytes: int, text: str) -> None:
    assert text in str(shred(line_of(make_record(memory_bytes=size_bytes)))["alloc_tres"]).split(",")


@given(name=st.text(), account=st.text())
def test_no_name_breaks_the_line(name: str, account: str) -> None:
    line = line_of(make_record(name=name, account=account))

    assert not {"\n", "\r", "\0"} & set(line)
    job = shred(line)
    assert len(name) == len(str(job["job_name"]))
    assert "batch" == job["partition_name"]
    assert "users" == job["group_name"]
