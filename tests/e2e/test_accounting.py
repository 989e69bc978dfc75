# SPDX-License-Identifier: Apache-2.0
"""Records of jobs are those of a real slurmdbd, read by sacct or from its MariaDB, through outages of both."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from lab import ALICE, BOB, CAROL, SlurmLab
from slurmscope.accounting.database import DatabaseAccounting
from slurmscope.accounting.grant import grant, revoke
from slurmscope.accounting.sacct import SacctAccounting
from slurmscope.accounting.server import job_view, open_session
from slurmscope.accounting.settings import AccountingSettings
from slurmscope.core.errors import CommandRefused, ServerTimedOut, SourceError
from slurmscope.jobs.record import JobRecord, StepRecord
from slurmscope.reports.resubmission import NodeSizes
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.slurm.coordinators import read_coordinated
from tests.e2e.accounting_access import ADMIN, administer, reader_settings

MIB = 1 << 20
BUSY = (
    "srun --ntasks=2 python3 -c 'import time; block = bytearray(60 << 20)\n"
    "while time.process_time() < 1.5: pass\ntime.sleep(2)'"
)
# Slurm itself turns double quotes into backticks.
NAMES = ("two\nlines", "pipe|in|name", "näme", "'; DROP TABLE jobs; --", "$(reboot)`id`<b>")
HELD = ("held", "held_array")


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Hold the jobs of these tests by what is special about them, and both ways to read them."""

    lab: SlurmLab
    jobs: dict[str, int]
    since: int
    settings: AccountingSettings

    @property
    def sacct(self) -> SacctAccounting:
        return SacctAccounting(commands(self.lab).run)

    @property
    def database(self) -> DatabaseAccounting:
        return DatabaseAccounting(self.settings)

    def read(self, name: str) -> JobRecord:
        (record,) = self.database.read_jobs([self.jobs[name]])
        return record


def commands(lab: SlurmLab, timeout: float = 30.0) -> SlurmCommands:
    return SlurmCommands(SlurmSettings(bin_path=lab.bin_path, timeout=timeout), lab.environment)


@pytest.fixture(scope="module")
def history(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """Let jobs of every kind run to their ends, and open the database."""
    slurm_lab.reset()
    since = int(time.time())
    jobs = submit(slurm_lab)
    settings = reader_settings(slurm_lab, tmp_path_factory.mktemp("reader") / "password")
    grant(settings, ADMIN, is_dry_run=False)
    try:
        made = History(lab=slurm_lab, jobs=jobs, since=since, settings=settings)
        wait_for_accounting(made)
        yield made
    finally:
        slurm_lab.reset()
        revoke(settings, ADMIN, is_dry_run=False)


def submit(lab: SlurmLab) -> dict[str, int]:
    held = ("--hold", "--mem=333M")
    jobs = {
        "busy": lab.submit(ALICE, "--ntasks=2", "--mem=200M", script=BUSY),
        "failed": lab.submit(ALICE, script="exit 3"),
        "shell": lab.submit(ALICE, script="exit 200"),
        "signal": lab.submit(BOB, script="kill -SEGV $$"),
        "oom": lab.submit(BOB, "--mem=50M", script="python3 -c 'bytearray(300 << 20)'"),
        "gpus": lab.submit(BOB, "--partition=gpus", "--gres=gpu:a100:2", "--nodes=2", script="sleep 1"),
        "array": lab.submit(ALICE, "--array=1-3", script="sleep 1"),
        "timeout": lab.submit(ALICE, "--partition=long", script="sleep 300"),
        "requeued": lab.submit(BOB, script="sleep 300"),
        "cancelled": lab.submit(BOB, "--account=chemistry", script="sleep 300"),
        "suspended": lab.submit(ALICE, script="sleep 20"),
        "running": lab.submit(CAROL, "--account=chemistry", script="sleep 900"),
        "never": lab.submit(BOB, *held),
        "held": lab.submit(BOB, *held),
        "held_array": lab.submit(BOB, "--hold", "--array=1-5%2"),
        "later": lab.submit(BOB, "--begin=now+1hour", "--nodes=2"),
        **{name: lab.submit(CAROL, f"--job-name={name}", script="true") for name in NAMES},
    }
    answer = lab.run("sbatch", "--parsable", "--ntasks=1", "--wrap=sleep 1", ":", "--ntasks=2", user=ALICE)
    jobs["het"] = int(answer.split("+")[0])
    for name in ("suspended", "timeout", "requeued", "cancelled", "running"):
        lab.wait_state(jobs[name], {"RUNNING"})
    lab.run("scontrol", "suspend", str(jobs["suspended"]))
    time.sleep(2)
    lab.run("scontrol", "resume", str(jobs["suspended"]))
    lab.run("scontrol", "update", f"JobId={jobs['timeout']}", "EndTime=now+1")
    lab.run("scancel", str(jobs["cancelled"]), str(jobs["never"]))
    lab.run("scontrol", "requeue", str(jobs["requeued"]))
    return jobs


def wait_for_accounting(history: History) -> None:
    """Wait until slurmdbd knows every end; it may learn of an end before it learns of the name."""
    open_jobs = {"running", "later", *HELD}
    ended = [number for name, number in history.jobs.items() if name not in open_jobs]

    def is_told() -> bool:
        records = {record.job_id: record for record in history.sacct.read_jobs(ended)}
        # The requeued job waits for its second run, which begins two minutes later.
        own = [records[number] for number in ended if number in records and number != history.jobs["requeued"]]
        return len(own) == len(ended) - 1 and all(r.has_ended and not r.is_partial for r in own)

    history.lab.wait_for(is_told, timeout=180, what="accounting of all jobs")
    time.sleep(3)


def comparable(record: JobRecord) -> JobRecord:
    """Round what sacct cuts to milliseconds, and leave out what the view of the database does not have."""

    def cut(step: StepRecord) -> StepRecord:
        return replace(step, cpu_seconds=None if step.cpu_seconds is None else int(1000 * step.cpu_seconds + 1e-6))

    return replace(record, cpu_seconds=None, array_tasks=None, steps=tuple(map(cut, record.steps)))


def by_run(records: Iterator[JobRecord] | tuple[JobRecord, ...]) -> dict[tuple[int, int, str], JobRecord]:
    return {(r.job_id, r.submit_seconds, r.state): comparable(r) for r in records}


class TestConformance:
    def test_both_ways_give_the_same_records_of_jobs(self, history: History) -> None:
        numbers = sorted(history.jobs.values())

        told, stored = history.sacct.read_jobs(numbers), history.database.read_jobs(numbers)

        # Every job, two more tasks of the array, the other part of the heterogeneous job, the requeued one's other run.
        assert len(history.jobs) + 2 + 1 + 1 == len(told)
        assert by_run(told) == by_run(stored)
        for one, other in zip(told, stored, strict=True):
            assert pytest.approx(other.cpu_seconds, abs=0.005) == one.cpu_seconds

    def test_both_ways_give_the_same_jobs_of_a_time(self, history: History) -> None:
        until = int(time.time())

        told = by_run(history.sacct.read_ended(history.since, until))

        assert told == by_run(history.database.read_ended(history.since, until))
        numbers = {job_id for job_id, _, _ in told}
        assert {history.jobs[name] for name in ("busy", "never", "requeued", "timeout", "het")} <= numbers
        assert not {history.jobs[name] for name in ("running", "later", *HELD)} & numbers

    def test_only_held_jobs_are_told_by_the_database_alone(self, history: History) -> None:
        told = {record.job_id: record.state for record in history.sacct.read_current()}
        stored = {record.job_id: record.state for record in history.database.read_current()}

        assert {history.jobs[name]: "PENDING" for name in HELD} == {
            number: state for number, state in stored.items() if number not in told
        }
        assert "RUNNING" == told[history.jobs["running"]] == stored[history.jobs["running"]]
        assert "PENDING" == told[history.jobs["later"]] == stored[history.jobs["later"]]

    def test_jobs_of_a_user_are_the_same_either_way(self, history: History) -> None:
        until = int(time.time())
        own = {history.jobs[name] for name in ("busy", "failed", "shell", "timeout", "suspended")}
        others = {history.jobs[name] for name in ("signal", "gpus", "running")}
        for source in (history.sacct, history.database):
            found = {record.job_id for record in source.read_user(ALICE, history.since - 60, until)}
            assert (own, set()) == (found & own, found & others)
            assert [] == list(source.read_user("nobody", history.since - 60, until))

    def test_step_whose_node_failed_has_no_exit_code_either_way(self, history: History) -> None:
        number = history.jobs["failed"]
        # As slurmdbd leaves it when the node goes down with the step.
        steps = "slurm_acct_db.lab_step_table s JOIN slurm_acct_db.lab_job_table j USING (job_db_inx)"
        administer(history.lab, f"UPDATE {steps} SET s.exit_code = -2 WHERE j.id_job = {number}")
        try:
            told, stored = history.sacct.read_jobs([number]), history.database.read_jobs([number])
        finally:
            administer(history.lab, f"UPDATE {steps} SET s.exit_code = 768 WHERE j.id_job = {number}")

        assert by_run(told) == by_run(stored)
        assert [(None, None)] == [(step.exit_code, step.exit_signal) for step in told[0].steps if step.name == "batch"]

    def test_release_is_that_which_the_controller_registered(self, history: History) -> None:
        answer = history.lab.run("sacctmgr", "-n", "-P", "show", "cluster", "lab", "format=rpc")
        with open_session(history.settings) as session:
            stored = session.query(f"SELECT DISTINCT rpc_version FROM {job_view('lab')}")

        assert ((int(answer),),) == stored

    def test_numbers_are_those_that_sacct_prints_for_people(self, history: History) -> None:
        """Ask with padded columns, local times and megabytes: not the way we ask."""
        columns = ("JobIDRaw", "State", "User", "Account", "Start", "End", "AllocCPUS", "ReqMem", "ExitCode", "QOS")
        ended = [history.jobs[name] for name in ("busy", "failed", "shell", "signal", "oom", "gpus", "timeout")]
        answer = history.lab.run(
            "sacct", "-X", "-n", "--units=M", "-j", ",".join(map(str, ended)), "-o",
            ",".join(f"{column}%30" for column in columns),
        )  # fmt: skip

        expected = {int(line.split()[0]): line.split()[1:] for line in answer.splitlines()}
        assert expected == {
            r.job_id: [
                r.state, r.user, r.account, local(r.start_seconds), local(r.end_seconds), str(r.cpus),
                f"{(r.memory_bytes or 0) // MIB}M", f"{r.exit_code}:{r.exit_signal}", r.qos,
            ]
            for r in history.database.read_jobs(ended)
        }  # fmt: skip


def local(seconds: int | None) -> str:
    assert seconds is not None
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


class TestRecords:
    def test_used_cpu_and_memory_are_those_of_the_tasks(self, history: History) -> None:
        job = history.read("busy")
        step = next(step for step in job.steps if step.name == "0")

        assert (2, 200 * MIB, 2) == (job.cpus, job.memory_bytes, step.tasks)
        # Two tasks that count 1.5 s of CPU time and hold 60 MiB each.
        assert step.cpu_seconds is not None
        assert 3.0 <= step.cpu_seconds <= (job.cpu_seconds or 0)
        assert step.max_rss_bytes is not None
        assert 60 * MIB <= step.max_rss_bytes < 90 * MIB

    def test_suspended_time_is_what_the_run_took_less(self, history: History) -> None:
        job = history.read("suspended")
        answer = history.lab.run("sacct", "-X", "-n", "-P", "-j", str(job.job_id), "-o", "ElapsedRaw")

        assert job.start_seconds is not None
        assert job.end_seconds is not None
        assert 2 <= job.suspended_seconds < 60
        assert int(answer) == job.end_seconds - job.start_seconds - job.suspended_seconds

    def test_cores_asked_for_are_known(self, history: History) -> None:
        assert (2, 1) == (history.read("busy").requested_cpus, history.read("never").requested_cpus)

    def test_gpus_nodes_and_limit_are_what_was_asked_for(self, history: History) -> None:
        job = history.read("gpus")

        assert (4, 2, history.lab.layout.gpu_nodes) == (job.gpus, job.node_count, job.nodes)
        assert (600, "gpus") == (job.time_limit_seconds, job.partition)

    def test_array_and_heterogeneous_job_come_with_all_parts(self, history: History) -> None:
        array, het = history.jobs["array"], history.jobs["het"]

        assert {f"{array}_{task}" for task in (1, 2, 3)} == {r.shown_id for r in history.database.read_jobs([array])}
        assert [f"{het}+0", f"{het}+1"] == [r.shown_id for r in history.database.read_jobs([het])]

    def test_requeued_job_has_two_runs(self, history: History) -> None:
        first, second = history.database.read_jobs([history.jobs["requeued"]])

        assert ("REQUEUED", True) == (first.state, first.has_ended)
        assert first.submit_seconds < second.submit_seconds

    def test_job_cancelled_while_it_waited_never_started(self, history: History) -> None:
        job = history.read("never")

        assert ("CANCELLED", None, None, ()) == (job.state, job.start_seconds, job.exit_code, job.nodes)
        assert 333 * MIB == job.memory_bytes

    @pytest.mark.parametrize("name", NAMES)
    def test_hostile_name_is_kept_and_moves_nothing(self, history: History, name: str) -> None:
        told = history.sacct.read_jobs([history.jobs[name]])

        assert [(name, CAROL, "physics", "COMPLETED")] == [(r.name, r.user, r.account, r.state) for r in told]
        assert name == history.read(name).name

    def test_unknown_job_is_no_record(self, history: History) -> None:
        assert () == history.sacct.read_jobs([4_000_000_000]) == history.database.read_jobs([4_000_000_000])


class TestOutages:
    @contextmanager
    def down(self, lab: SlurmLab, daemon: str) -> Iterator[None]:
        lab.kill(daemon)
        try:
            yield
        finally:
            lab.start_daemon(daemon)

    def test_database_that_is_down_is_told_and_the_next_question_answered(self, history: History) -> None:
        database = history.database
        with self.down(history.lab, "mariadbd"), pytest.raises(SourceError) as caught:
            database.read_jobs([history.jobs["busy"]])
        assert history.settings.password_file is not None
        assert history.settings.password_file.read_text(encoding="ascii").strip() not in str(caught.value)

        assert [history.jobs["busy"]] == [r.job_id for r in database.read_jobs([history.jobs["busy"]])]

    def test_database_killed_within_an_answer_is_told(self, history: History) -> None:
        killer = threading.Timer(0.5, history.lab.kill, ["mariadbd"])
        try:
            with open_session(history.settings) as session:
                killer.start()
                with pytest.raises(SourceError, match=r"mariadb\.sock"):
                    session.query("SELECT SLEEP(15)")
        finally:
            killer.join()
            history.lab.start_daemon("mariadbd")

        assert history.database.read_jobs([history.jobs["busy"]])

    def test_silent_database_is_given_up(self, history: History) -> None:
        hurried = DatabaseAccounting(replace(history.settings, timeout=1.0))
        history.lab.suspend("mariadbd")
        try:
            with pytest.raises(ServerTimedOut):
                hurried.read_jobs([history.jobs["busy"]])
        finally:
            history.lab.resume("mariadbd")

        assert history.database.read_jobs([history.jobs["busy"]])

    def test_slow_statement_is_ended_by_the_server(self, history: History) -> None:
        # The client would wait a minute; the server is told to give up after one second.
        with open_session(replace(history.settings, timeout=60.0)) as session:
            session.query("SET SESSION max_statement_time = 1")
            with pytest.raises(ServerTimedOut):
                session.query("SELECT SLEEP(40)")
        with open_session(replace(history.settings, timeout=2.5)) as session:
            assert ((2.5,),) == session.query("SELECT @@SESSION.max_statement_time")

    def test_slurmdbd_that_is_down_does_not_matter_to_the_database(self, history: History) -> None:
        with self.down(history.lab, "slurmdbd"):
            with pytest.raises(CommandRefused):
                history.sacct.read_jobs([history.jobs["busy"]])
            assert history.database.read_jobs([history.jobs["busy"]])


def test_sizes_of_nodes_are_those_of_slurm(slurm_lab: SlurmLab) -> None:
    node = slurm_lab.layout.gpu_nodes[0]
    shown = dict(word.partition("=")[::2] for word in slurm_lab.run("scontrol", "show", "node", node).split())

    size = NodeSizes(commands(slurm_lab).run).smallest("lab", [node])

    assert (float(shown["CPUTot"]), float(shown["RealMemory"]) * MIB) == size


def test_coordinators_are_those_of_slurm(slurm_lab: SlurmLab) -> None:
    # Not a clean cluster: that would cancel the jobs of the tests above.
    run = commands(slurm_lab).run
    slurm_lab.run("sacctmgr", "-i", "add", "account", "lenses", "parent=physics")
    slurm_lab.run("sacctmgr", "-i", "add", "coordinator", "account=physics", f"names={ALICE}")
    try:
        assert {"physics", "lenses"} == read_coordinated(run, ALICE)
        assert frozenset() == read_coordinated(run, BOB) == read_coordinated(run, "nobody-of-that-name")
    finally:
        slurm_lab.run("sacctmgr", "-i", "delete", "coordinator", "account=physics", f"names={ALICE}")
        slurm_lab.run("sacctmgr", "-i", "delete", "account", "lenses")
