# SPDX-License-Identifier: Apache-2.0
"""Jobs one by one, whatever their users call them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.job_info import COLLECTOR, arguments, parse_job_list
from slurmscope.cluster.squeue import JobList, ListedJob
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import NoOptions

SEPARATOR = "5c0ffee5"
MARK = f"\x1f{SEPARATOR}"


def row(*, job_id: str = "4", array: tuple[str, str] = ("4", "N/A"), state: str = "RUNNING", cpus: str = "2",
        tres: str = "cpu=2,mem=200M,node=1", name: str = "run") -> str:  # fmt: skip
    """Write a row as squeue 22.05 does with our arguments."""
    fields = (job_id, *array, "N/A", "alice", "physics", "debug", "normal", state, "n1", cpus, tres, name)
    return MARK.join(fields) + MARK + MARK + "\n"


def parse(text: str) -> JobList:
    return parse_job_list(text.encode("utf-8", "surrogateescape"), SEPARATOR)


def test_arguments_name_every_column() -> None:
    given_format = arguments(SEPARATOR)[-1]

    assert given_format.startswith(f"--Format=JobID:{MARK},ArrayJobID:{MARK},")
    assert given_format.endswith(f"Name:{MARK}{MARK}")


def test_row_becomes_a_job() -> None:
    assert JobList(
        (
            ListedJob(job_id="4", array_job_id="", array_tasks="", het_job_id="", user="alice", account="physics",
                partition="debug", qos="normal", state="RUNNING", node_list="n1", name="run", cpus=2,
                memory_bytes=200 * 2**20),
        )
    ) == parse(row())  # fmt: skip


def test_pending_array_is_one_job_with_its_tasks() -> None:
    (job,) = parse(row(array=("4", "2-5%1"), state="PENDING")).jobs

    assert ("4", "2-5%1") == (job.array_job_id, job.array_tasks)


@pytest.mark.parametrize("name", ["x\n999|fake", "", "\x1b[31m", 'quo"te', "\udcff", "n" * 1000, SEPARATOR, "\x1f"])
def test_no_name_forges_a_row(name: str) -> None:
    jobs = parse(row(name=name) + row(job_id="5"))

    assert [("4", name), ("5", "run")] == [(job.job_id, job.name) for job in jobs.jobs]


def test_odd_rows_are_counted() -> None:
    odd = row(job_id="four") + row(cpus="many") + row(tres="cpu") + f"banner{MARK}{MARK}\n"

    jobs = parse(odd + row())

    assert (1, 4) == (len(jobs.jobs), jobs.unreadable_rows)


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_cut_answer_is_no_answer(cut: int) -> None:
    with pytest.raises(MalformedAnswer):
        parse(row() + row()[:-cut])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x1f"), max_size=30), max_size=5))
def test_names_come_back_as_they_were(names: list[str]) -> None:
    assert names == [job.name for job in parse("".join(row(name=name) for name in names)).jobs]


def test_every_job_is_served_and_what_running_ones_hold() -> None:
    jobs = parse(row() + row(job_id="5", state="PENDING") + row(job_id="6", tres="cpu=1"))

    served = {family.metric.name: family.samples for family in COLLECTOR.collect(NoOptions(), job_list=jobs)}

    assert {("4",): 2, ("6",): 2} == served["slurm_job_cpu_alloc"]
    assert {("4",): 200 * 2**20} == served["slurm_job_mem_alloc"]
    assert ("4", "", "", "", "alice", "physics", "debug", "normal", "RUNNING", "n1", "run") in served["slurm_job_info"]
    assert 3 == len(list(served["slurm_job_info"]))
