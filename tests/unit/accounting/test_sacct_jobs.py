# SPDX-License-Identifier: Apache-2.0
"""What sacct tells of jobs and steps becomes records, whatever users call their jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.accounting.fields import COLUMNS, LAST_COLUMN, parse_cpu_time, split_rows
from slurmscope.accounting.records import parse_records
from slurmscope.accounting.sacct import SacctAccounting
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.tres import Gres
from slurmscope.jobs.record import MAX_STEPS, JobRecord
from slurmscope.simulator.cluster.records import HOSTILE_NAMES
from tests.fakes.sacct import JOB, MARK, STEP, WIDE, FakeSacct, rows

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "slurm-22.05"
FIXTURE_COLUMNS = (
    "JobIDRaw", "JobID", "JobName", "Cluster", "User", "UID", "Account", "Partition", "QOS", "Submit", "Eligible",
    "Start", "End", "TimelimitRaw", "AllocTRES", "ReqTRES", "NodeList", "NNodes", "NTasks", "ExitCode", "TotalCPU",
    "MaxRSS", "Reason", "WorkDir", "SubmitLine", "State",
)  # fmt: skip
MIB = 1 << 20


def read(*values: dict[str, str]) -> tuple[JobRecord, ...]:
    return parse_records(rows(*values), WIDE, MARK)


def read_one(**changes: str) -> JobRecord:
    (record,) = read({**JOB, **changes})
    return record


def read_suspended(**changes: str) -> int:
    columns = (*COLUMNS, "Suspended", LAST_COLUMN)
    (record,) = parse_records(rows({**JOB, **changes}, columns=columns), columns, MARK)
    return record.suspended_seconds


@pytest.fixture(scope="module")
def captured() -> dict[tuple[str, str], JobRecord]:
    """Give what the lab's jobs left behind, by the number users see and the state."""
    records = parse_records((FIXTURES / "sacct-jobs.txt").read_bytes(), FIXTURE_COLUMNS, MARK)
    return {(record.shown_id, record.state): record for record in records}


class TestCapturedAnswer:
    def test_every_run_is_one_record(self, captured: dict[tuple[str, str], JobRecord]) -> None:
        assert 28 == len(captured)
        assert {("21", "REQUEUED"), ("21", "COMPLETED")} <= captured.keys()

    def test_steps_are_within_their_job(self, captured: dict[tuple[str, str], JobRecord]) -> None:
        job = captured["1", "COMPLETED"]

        assert ("labalice", 1001, "physics", "debug", "normal", "lab") == (
            job.user, job.uid, job.account, job.partition, job.qos, job.cluster,
        )  # fmt: skip
        assert (2, 200 * MIB, ("lab0n1",), 1) == (job.cpus, job.memory_bytes, job.nodes, job.node_count)
        assert [("batch", 1, 3870720), ("0", 2, 65785856)] == [
            (step.name, step.tasks, step.max_rss_bytes) for step in job.steps
        ]
        assert pytest.approx(5.813) == job.cpu_seconds

    def test_gpus_and_nodes_are_counted(self, captured: dict[tuple[str, str], JobRecord]) -> None:
        job = captured["6", "COMPLETED"]

        assert (4, ("lab0n3", "lab0n4"), 2) == (job.gpus, job.nodes, job.node_count)

    def test_ends_of_every_kind_are_distinguished(self, captured: dict[tuple[str, str], JobRecord]) -> None:
        expected = {
            ("3", "FAILED"): (3, 0), ("4", "FAILED"): (0, 11), ("5", "OUT_OF_MEMORY"): (0, 125),
            ("20", "TIMEOUT"): (0, 0), ("22", "CANCELLED"): (0, 0),
        }  # fmt: skip

        assert expected == {key: (captured[key].exit_code, captured[key].exit_signal) for key in expected}

    def test_arrays_and_heterogeneous_jobs_know_their_parents(self, captured: dict[tuple[str, str], JobRecord]) -> None:
        assert {13: (7, 1), 14: (7, 2), 7: (7, 3), 8: (8, None), 26: (26, None)} == {
            job.job_id: (job.array_job_id, job.array_task_id) for job in captured.values() if job.array_job_id
        }
        assert {18: (18, 0), 19: (18, 1)} == {
            job.job_id: (job.het_job_id, job.het_offset) for job in captured.values() if job.het_job_id
        }

    def test_job_cancelled_while_it_waited_never_started(self, captured: dict[tuple[str, str], JobRecord]) -> None:
        job = captured["24", "CANCELLED"]

        assert (None, None, (), None) == (job.start_seconds, job.eligible_seconds, job.nodes, job.exit_code)
        assert (333 * MIB, 1, "JobHeldUser") == (job.memory_bytes, job.cpus, job.reason)
        assert job.has_ended

    def test_names_are_kept_as_they_are(self, captured: dict[tuple[str, str], JobRecord]) -> None:
        # slurmdbd itself had already put question marks where its tables have no letters.
        assert "näme-?-??|x" == captured["9", "COMPLETED"].name
        assert "two\nlines" == captured["10", "COMPLETED"].name

    def test_job_without_limit_has_none(self, captured: dict[tuple[str, str], JobRecord]) -> None:
        assert captured["11", "PENDING"].time_limit_seconds is None
        assert 600 == captured["1", "COMPLETED"].time_limit_seconds


def test_output_files_and_failed_node_are_read_where_sacct_has_them() -> None:
    columns = (*COLUMNS, "StdOut", "StdErr", "FailedNode", LAST_COLUMN)
    (later,) = parse_records(rows(JOB, columns=columns), columns, MARK)

    assert ("/home/ada/%j.out", "/home/ada/%j.err", "n2") == (later.stdout, later.stderr, later.failed_node)
    assert ("", "", "") == (read_one().stdout, read_one().stderr, read_one().failed_node)


def test_step_knows_its_nodes() -> None:
    (job,) = read(JOB, {**STEP, "NodeList": "n2"})

    assert ["n2"] == [step.node_list for step in job.steps]


class TestRecord:
    def test_started_job_has_what_was_allocated(self) -> None:
        job = read_one()

        assert (4, 400 * MIB, 2, ("n1", "n2")) == (job.cpus, job.memory_bytes, job.node_count, job.nodes)
        assert 4 == job.billing
        assert (Gres(name="gpu", count=2),) == job.gres

    @pytest.mark.parametrize(("energy", "joules"), [("58311", 58311), ("0", None), (str(2**64 - 2), None)])
    def test_energy_is_that_of_a_plugin(self, energy: str, joules: int | None) -> None:
        assert joules == read_one(AllocTRES=f"billing=2,cpu=2,energy={energy},mem=100M,node=1").consumed_joules
        assert read_one().consumed_joules is None

    def test_waiting_job_has_what_it_requested(self) -> None:
        job = read_one(
            State="PENDING", Start="Unknown", End="Unknown", AllocTRES="", NodeList="None assigned", Reason="Priority",
            Partition="debug,long", Eligible="Unknown",
        )  # fmt: skip

        assert (1, 1024 * MIB, 1, ()) == (job.cpus, job.memory_bytes, job.node_count, job.nodes)
        assert (None, None, None, None) == (job.start_seconds, job.end_seconds, job.eligible_seconds, job.exit_code)
        assert ("Priority", "debug") == (job.reason, job.partition)

    def test_record_without_the_start_is_partial(self) -> None:
        # As slurmdbd 22.05 makes it when the end of a job comes before its start.
        unknown = {"JobName": "allocation", "Partition": "", "ReqTRES": "", "WorkDir": "", "SubmitLine": ""}

        assert [True, True, False, False] == [
            record.is_partial
            for record in (
                read_one(**unknown),
                read_one(**unknown, State="PENDING", End="Unknown", AllocTRES=""),
                read_one(JobName="allocation"),
                read_one(State="PENDING", Start="Unknown", End="Unknown", AllocTRES=""),
            )
        ]

    def test_cores_of_a_running_job_with_a_partial_record_are_unknown(self) -> None:
        half = {
            "JobName": "allocation", "Partition": "", "ReqTRES": "", "State": "PENDING", "End": "Unknown",
            "AllocTRES": "",
        }  # fmt: skip
        job = read({**JOB, **half}, {**STEP, "State": "RUNNING", "End": "Unknown"})[0]

        assert ("RUNNING", None) == (job.state, job.cpus)

    @pytest.mark.parametrize(
        ("text", "uid"), [("CANCELLED by 1001", 1001), ("CANCELLED by 0", 0), ("CANCELLED", None), ("COMPLETED", None)]
    )
    def test_who_cancelled_it_is_kept_apart_from_the_state(self, text: str, uid: int | None) -> None:
        job = read_one(State=text)

        assert (text.partition(" ")[0], uid) == (job.state, job.cancelled_by_uid)

    @pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", "", "0"])
    def test_no_limit_is_none(self, limit: str) -> None:
        assert read_one(TimelimitRaw=limit).time_limit_seconds is None

    def test_user_without_name_is_a_number(self) -> None:
        assert "1001" == read_one(User="").user
        assert "" == read_one(User="", UID="").user

    def test_step_too_short_for_slurm_has_no_memory(self) -> None:
        (job,) = read(JOB, {**STEP, "MaxRSS": "0"})

        assert (None, 62.5) == (job.steps[0].max_rss_bytes, job.steps[0].cpu_seconds)

    def test_step_that_was_not_sampled_has_no_cpu_time(self) -> None:
        (job,) = read(JOB, {**STEP, "MaxRSS": "", "TotalCPU": "00:00:00"})

        assert (None, None) == (job.steps[0].cpu_seconds, job.cpu_seconds)

    def test_running_step_has_used_nothing_yet(self) -> None:
        (job,) = read({**JOB, "State": "RUNNING", "End": "Unknown"}, {**STEP, "State": "RUNNING", "End": "Unknown"})

        assert (None, None, None) == (job.steps[0].cpu_seconds, job.steps[0].exit_code, job.cpu_seconds)

    def test_cpu_time_is_that_of_all_steps(self) -> None:
        (job,) = read(JOB, STEP, {**STEP, "JobIDRaw": "12.1", "TotalCPU": "1-01:00:00"})

        assert 62.5 + 25 * 3600 == job.cpu_seconds

    def test_of_too_many_steps_the_largest_are_kept(self) -> None:
        steps = [{**STEP, "JobIDRaw": f"12.{number}", "MaxRSS": str(number + 1)} for number in range(MAX_STEPS + 5)]

        (job,) = read(JOB, *steps)

        assert [str(number) for number in range(5, MAX_STEPS + 5)] == [step.name for step in job.steps]
        assert 62.5 * (MAX_STEPS + 5) == job.cpu_seconds

    def test_restarts_are_read_where_sacct_tells(self) -> None:
        columns = (*COLUMNS, "Restarts", LAST_COLUMN)

        (job,) = parse_records(rows({**JOB, "Restarts": "2"}, columns=columns), columns, MARK)

        assert 2 == job.restarts

    def test_cores_requested_are_reported_beside_those_given(self) -> None:
        # Two threads of a whole core for a job that asked for one.
        job = read_one(ReqTRES="billing=1,cpu=1,mem=100M,node=1", AllocTRES="billing=2,cpu=2,mem=100M,node=1")

        assert (1, 2) == (job.requested_cpus, job.cpus)
        assert (None, 4) == (read_one(ReqTRES="").requested_cpus, read_one(ReqTRES="").cpus)

    @pytest.mark.parametrize(
        ("text", "end", "seconds"),
        [
            # Each started at 1794757663; sacct 22.05 printed 18, 13 and 5 as their ElapsedRaw.
            pytest.param("00:00:07", "1794757688", 7, id="once"),
            pytest.param("00:00:12", "1794757688", 12, id="twice"),
            pytest.param("00:00:00", "1794757668", 0, id="cancelled while suspended"),
            pytest.param("1-01:01:01", "1795000000", 90061, id="days"),
            pytest.param("20772-15:47:48", "1794757688", 0, id="resuming missed"),
            pytest.param("INVALID", "1794757688", 0, id="no time"),
        ],
    )
    def test_suspended_time_is_read(self, text: str, end: str, seconds: int) -> None:
        assert seconds == read_suspended(Start="1794757663", End=end, Suspended=text)

    def test_job_that_runs_was_suspended_before_and_one_that_waits_was_not(self) -> None:
        assert 7 == read_suspended(State="RUNNING", End="Unknown", Suspended="00:00:07")
        assert 0 == read_suspended(State="PENDING", Start="Unknown", AllocTRES="", Suspended="00:00:07")

    def test_part_before_a_resize_has_its_own_size_and_end(self) -> None:
        part, _ = read({**JOB, "State": "RESIZING"}, {**JOB, "AllocTRES": "cpu=12"})

        assert ("RESIZING", read_one().cpus, read_one().end_seconds) == (part.state, part.cpus, part.end_seconds)

    @pytest.mark.parametrize("odd", ["gres/gpu=lots", "=", "cpu"])
    def test_odd_resources_cost_only_themselves(self, odd: str) -> None:
        job = read_one(AllocTRES=odd)

        assert (None, None, "relax") == (job.cpus, job.memory_bytes, job.name)

    @pytest.mark.parametrize("odd", ["n[1-", "n[1-999999999]"])
    def test_odd_nodes_cost_only_themselves(self, odd: str) -> None:
        assert ((), 4) == (read_one(NodeList=odd).nodes, read_one(NodeList=odd).cpus)


class TestHostileText:
    @pytest.mark.parametrize("name", HOSTILE_NAMES)
    def test_name_neither_adds_nor_moves_rows(self, name: str) -> None:
        hostile = {**JOB, "JobName": name, "WorkDir": name, "SubmitLine": name}
        shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

        first, second = read(hostile, {**JOB, "JobIDRaw": "13"})

        assert (12, shown, shown, shown) == (first.job_id, first.name, first.work_dir, first.submit_line)
        assert (13, "relax") == (second.job_id, second.name)
        first.name.encode("utf-8")

    @given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4), max_size=5))
    def test_cells_are_found_again(self, middles: list[list[str]]) -> None:
        width = 6
        table = [["1", *(middle * 4)[:4], "END"] for middle in middles]
        text = "".join("|9f2c|".join(cell.replace("9f2c", "") for cell in row) + "\n" for row in table)

        assert [[cell.replace("9f2c", "") for cell in row] for row in table] == list(split_rows(text, "|9f2c|", width))

    def test_separator_is_new_for_every_call(self) -> None:
        sacct = FakeSacct(lambda _: [JOB])
        accounting = SacctAccounting(sacct.run)

        accounting.read_jobs([12])
        accounting.read_jobs([12])

        assert 2 == len({call["delimiter"] for call in sacct.calls})


class TestBadAnswers:
    @pytest.mark.parametrize("answer", [b"slurm: what?\n", rows(JOB)[:-1], rows(JOB) + b"1|c0ffee|2\n"])
    def test_cut_or_odd_answer_is_no_answer(self, answer: bytes) -> None:
        with pytest.raises(MalformedAnswer, match="columns"):
            parse_records(answer, WIDE, MARK)

    @pytest.mark.parametrize("change", [{"Submit": "Unknown"}, {"ExitCode": "x"}, {"JobIDRaw": "x"}])
    def test_odd_row_costs_only_itself(self, change: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
        assert [13] == [job.job_id for job in read({**JOB, **change}, STEP, {**JOB, "JobIDRaw": "13"})]
        assert ["rows of sacct could not be parsed"] == [record.message for record in caplog.records]

    def test_odd_step_costs_only_itself(self) -> None:
        (job,) = read(JOB, {**STEP, "TotalCPU": "soon"}, {**STEP, "JobIDRaw": "12.1"})

        assert ["1"] == [step.name for step in job.steps]

    def test_answer_without_a_good_row_is_no_answer(self) -> None:
        with pytest.raises(MalformedAnswer, match=r"none of 1 rows could be parsed; the log names one\Z"):
            read_one(ExitCode="x")

    def test_step_whose_node_failed_has_no_exit_code(self) -> None:
        (job,) = read({**JOB, "ExitCode": ""}, {**STEP, "ExitCode": ""})

        assert (None, None) == (job.exit_code, job.exit_signal)
        assert [(None, None)] == [(step.exit_code, step.exit_signal) for step in job.steps]

    @pytest.mark.parametrize("text", ["Unknown", "0", "4294967295", "4294967294"])
    def test_job_that_never_was_eligible_has_no_such_time(self, text: str) -> None:
        assert read_one(Eligible=text).eligible_seconds is None

    def test_nothing_is_no_job(self) -> None:
        assert () == parse_records(b"", WIDE, MARK)

    @given(st.binary(max_size=200))
    def test_any_bytes_are_read_or_rejected(self, answer: bytes) -> None:
        try:
            parse_records(answer, WIDE, MARK)
        except MalformedAnswer:
            assert answer

    @pytest.mark.parametrize(
        ("text", "seconds"), [("00:01.500", 1.5), ("59:59", 3599), ("23:59:59", 86399), ("2-00:00:01", 172801)]
    )
    def test_cpu_times_of_every_length_are_read(self, text: str, seconds: float) -> None:
        assert seconds == parse_cpu_time(text)
