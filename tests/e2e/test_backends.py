# SPDX-License-Identifier: Apache-2.0
"""The same cluster gives equal families through every backend.

What cannot be equal, because Slurm itself does not tell the same:

- squeue leaves out the last task of a pending array with a step (``0-30:3``); JSON tells the range, all is counted.
- slurmrestd cuts the list of an array's tasks after 64 characters, unless SLURM_BITSTR_LEN=0 is in its environment.
- sinfo 22.05 calls a node that drains while some of its CPUs are allocated ``allocated``; JSON calls it ``mixed``, as
  later sinfo do.
- sinfo leaves out nodes that are in no partition, and cuts a weight after seven digits; JSON does not.
- squeue prints a sentence as the reason of a job that was requeued and held ("job requeued in held state"), and
  slurm_pending_reason_total keeps it; JSON has the reason itself.
- squeue calls every user ``nobody`` whom its host does not know; JSON has his number.
- v0.0.42 and older do not tell the flag ``blocked``.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab import ALICE, BOB, CAROL, SlurmLab
from lab.config import LabSettings
from lab.rest import make_token, run_slurmrestd, run_slurmrestd_with_tokens, token_lines
from slurmscope.cluster.backends import Backend, open_backend
from slurmscope.cluster.jobs import COLLECTOR as JOBS
from slurmscope.cluster.jobs import JobsOptions
from slurmscope.cluster.nodes import COLLECTOR as NODES
from slurmscope.cluster.nodes import NodesOptions
from slurmscope.cluster.squeue import StartWindow, add_starts
from slurmscope.core.errors import CommandRefused, ServerRefused, SlurmRefused, SourceError
from slurmscope.http.client.address import parse_address
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from tests.e2e.asking import count_questions, samples_of

NOW = 2_000_000_000.0
ALWAYS = StartWindow(0, 2**31)
# Too many to be told in 64 characters, and without a step.
SCATTERED = tuple(number for number in range(300) if number * number % 7 in {1, 2})

Families = dict[str, Mapping[tuple[str, ...], object]]


def open_one(lab: SlurmLab, name: str, url: str = "", token_file: Path | None = None, user: str = "") -> Backend:
    settings = SlurmSettings(
        bin_path=lab.bin_path,
        timeout=30.0,
        backend=name,
        rest_url=parse_address(url) if url else None,
        rest_token_file=token_file,
        rest_user=user,
    )
    return open_backend(settings, SlurmCommands(settings, lab.environment))


@pytest.fixture(scope="module")
def started_lab() -> Iterator[SlurmLab]:
    """Give a cluster that knows tokens.

    Not the cluster of all tests: a controller remembers ended jobs for minutes, and arrays that text and JSON tell
    differently would be among them.
    """
    with tempfile.TemporaryDirectory(prefix="slurm-lab-key-") as folder:
        settings = LabSettings(extra_lines=token_lines(Path(folder) / "key"))
        lab = SlurmLab(Path(tempfile.mkdtemp(prefix="slurm-lab-")), settings)
        try:
            lab.start()
            yield lab
        finally:
            lab.destroy()


@pytest.fixture
def own_lab(started_lab: SlurmLab) -> SlurmLab:
    """Give that cluster without jobs and with idle nodes."""
    started_lab.reset()
    return started_lab


@contextlib.contextmanager
def all_backends(lab: SlurmLab) -> Iterator[dict[str, Backend]]:
    with run_slurmrestd(lab) as server:
        yield {name: open_one(lab, name, server.url) for name in ("text", "json", "rest")}


@pytest.fixture
def backends(own_lab: SlurmLab) -> Iterator[dict[str, Backend]]:
    """Give all backends of a clean cluster."""
    with all_backends(own_lab) as opened:
        yield opened


def families(backend: Backend) -> Families:
    """Collect everything that a backend's readings give; the moment is always the same."""
    jobs = backend.read_jobs(ALWAYS, NOW)
    waits = add_starts({}, jobs.starts)
    of_jobs = JOBS.collect(JobsOptions(), jobs=type(jobs)(groups=jobs.groups, taken_at_seconds=NOW, waits=waits))
    of_nodes = NODES.collect(NodesOptions(partition_map=True), nodes=backend.read_nodes())
    return samples_of(of_jobs) | samples_of(of_nodes)


def read_quiet(backends: Mapping[str, Backend], attempts: int = 20) -> dict[str, Families]:
    """Read all backends while nothing changes: the text says the same before and after."""
    for _ in range(attempts):
        found = {name: families(backend) for name, backend in backends.items()}
        if families(backends["text"]) == found["text"]:
            return found
    pytest.fail(f"the cluster did not keep still in {attempts} attempts")


def fill(lab: SlurmLab) -> None:
    """Submit jobs in every state that keeps still, and drain a node."""
    first, second, third, fourth = lab.nodes
    lab.run("scontrol", "update", f"NodeName={fourth}", "State=DRAIN", "Reason=bad dimm, slot 3")
    running = [
        lab.submit(BOB, "--partition=gpus", f"--nodelist={third}", "--gres=gpu:a100:1", script="sleep 600"),
        lab.submit(CAROL, f"--nodelist={first},{second}", "--ntasks=4", "--mem=300M", script="sleep 600"),
        lab.submit(ALICE, f"--nodelist={first}", "--cpus-per-task=2", "--mem-per-cpu=50M", script="sleep 600"),
    ]
    lab.submit(CAROL, f"--dependency=afterok:{running[0]}")
    lab.submit(ALICE, "--array=1-10%2", "--hold")
    lab.submit(ALICE, f"--array={','.join(map(str, SCATTERED))}", "--hold")
    lab.submit(BOB, "--partition=debug,long", "--hold")
    lab.submit(CAROL, "--account=chemistry", "--nodes=2-3", "--exclusive", "--hold")
    lab.submit(ALICE, "--hold", "--ntasks=1", ":", "--ntasks=2")
    lab.submit(ALICE, "--begin=now+1hour")
    lab.submit(BOB, f"--nodelist={fourth}")
    lab.submit(ALICE, "--hold", "--job-name=x\n999|fake|root|RUNNING")
    lab.submit(ALICE, "--hold", "--job-name=raw\udcff\udcfebytes", "--comment=caf\udce9")
    lab.run("scancel", str(lab.submit(BOB, "--hold")))
    ended = [lab.submit(BOB, script="true"), lab.submit(BOB, script="false")]
    array = lab.submit(CAROL, f"--nodelist={second}", "--array=1-4%1", script="sleep 600")
    for job in running:
        lab.wait_state(job, {"RUNNING"})
    for job in ended:
        lab.wait_state(job, {"COMPLETED", "FAILED"})
    lab.wait_for(lambda: lab.job_states(array) == {"RUNNING", "PENDING"}, what="a task of the array to start")


def test_families_are_equal_through_every_backend(own_lab: SlurmLab, backends: dict[str, Backend]) -> None:
    fill(own_lab)

    found = read_quiet(backends)

    assert found["text"] == found["json"]
    assert found["text"] == found["rest"]
    # The counts of squeue itself, so that equal does not mean equally empty.
    states = own_lab.run("squeue", "--noheader", "--all", "--array", "--format=%T").split()
    counts = {(state,): states.count(state) for state in ("PENDING", "RUNNING")}
    assert counts.items() <= dict(found["rest"]["slurm_jobs"]).items()
    assert {("COMPLETED",), ("FAILED",), ("CANCELLED",)} <= set(found["rest"]["slurm_jobs"])


def test_job_that_was_requeued_and_held_is_held_through_every_backend(
    own_lab: SlurmLab, backends: dict[str, Backend]
) -> None:
    job = own_lab.submit(ALICE, script="sleep 600")
    own_lab.wait_state(job, {"RUNNING"})
    own_lab.run("scontrol", "requeuehold", str(job))
    own_lab.wait_state(job, {"PENDING"})
    assert "job requeued in held state" == own_lab.run("squeue", "-h", "-a", "-O", "Reason:").strip()

    for name, found in read_quiet(backends).items():
        assert {("debug", "JobHeldUser"): 1} == found["slurm_partition_pending_jobs"], name
        assert {("debug", "user"): 1} == found["slurm_partition_held_jobs"], name
        assert not found.get("slurm_partition_oldest_pending_age_seconds"), name


def test_json_costs_the_controller_one_question_less(own_lab: SlurmLab, backends: dict[str, Backend]) -> None:
    costs = {}
    for name, backend in backends.items():
        before = count_questions(own_lab)
        backend.read_jobs(ALWAYS, NOW)
        backend.read_nodes()
        costs[name] = count_questions(own_lab) - before
        del costs[name]["REQUEST_STATS_INFO"]

    for_json = {"REQUEST_JOB_INFO": 1, "REQUEST_NODE_INFO": 1, "REQUEST_PARTITION_INFO": 1}
    # squeue looks at the partitions too.
    assert {"text": for_json | {"REQUEST_PARTITION_INFO": 2}, "json": for_json, "rest": for_json} == costs


def test_draining_node_is_mixed_in_json_and_allocated_in_text(own_lab: SlurmLab, backends: dict[str, Backend]) -> None:
    node = own_lab.nodes[0]
    own_lab.wait_state(own_lab.submit(ALICE, f"--nodelist={node}"), {"RUNNING"})
    own_lab.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")

    found = {name: next(n for n in backend.read_nodes().nodes if n.name == node) for name, backend in backends.items()}

    assert {"text": "allocated", "json": "mixed", "rest": "mixed"} == {name: n.base_state for name, n in found.items()}
    assert {("draining", 7)} == {(n.state_text, n.cpus_total - n.cpus_allocated - n.cpus_idle) for n in found.values()}


def test_controller_that_is_down_is_a_failure_of_every_backend(own_lab: SlurmLab, backends: dict[str, Backend]) -> None:
    reads: list[tuple[str, Callable[[], object]]] = [
        (name, read)
        for name, backend in backends.items()
        for read in (lambda backend=backend: backend.read_jobs(ALWAYS, NOW), backend.read_nodes)
    ]
    backends["json"].read_nodes()
    own_lab.kill_controller()
    try:
        with ThreadPoolExecutor(len(reads)) as pool:
            errors = list(pool.map(lambda read: (read[0], failure(read[1])), reads))
    finally:
        own_lab.start_controller()

    expected = {"text": CommandRefused, "json": SlurmRefused, "rest": SlurmRefused}
    assert [(name, expected[name]) for name, _ in reads] == [(name, type(error)) for name, error in errors]
    assert {"refused"} == {error.reason for _, error in errors if error}


def failure(read: Callable[[], object]) -> SourceError | None:
    try:
        read()
    except SourceError as error:
        return error
    return None


def test_slurmrestd_on_a_port_lets_in_who_has_a_token(own_lab: SlurmLab, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    with run_slurmrestd_with_tokens(own_lab) as server:
        backend = open_one(own_lab, "rest", server.url, token_file, ALICE)
        with pytest.raises(ServerRefused, match="cannot read the token file"):
            backend.read_nodes()
        token_file.write_text("wrong")
        with pytest.raises(SlurmRefused, match="Slurm reports"):
            backend.read_nodes()
        with pytest.raises(ServerRefused, match="answered 401"):
            open_one(own_lab, "rest", server.url, token_file).read_nodes()

        token_file.write_text(f"SLURM_JWT={make_token(own_lab, ALICE)}\n")

        assert own_lab.nodes == tuple(node.name for node in backend.read_nodes().nodes)


def test_last_task_of_a_step_is_left_out_by_squeue_alone(clean_lab: SlurmLab) -> None:
    clean_lab.submit(ALICE, "--array=0-30:3", "--hold")

    with all_backends(clean_lab) as backends:
        counts = {name: held_jobs(backend) for name, backend in backends.items()}

    tasks = len(range(0, 31, 3))
    assert {"text": tasks - 1, "json": tasks, "rest": tasks} == counts


def test_array_that_slurmrestd_has_cut_is_told(clean_lab: SlurmLab) -> None:
    with run_slurmrestd(clean_lab, environment={}) as server:
        backend = open_one(clean_lab, "rest", server.url)
        unreadable_before = backend.read_jobs(ALWAYS, NOW).unreadable_rows
        clean_lab.submit(ALICE, f"--array={','.join(map(str, SCATTERED))}", "--hold")
        jobs, counted = backend.read_jobs(ALWAYS, NOW), held_jobs(backend)

    assert unreadable_before + 1 == jobs.unreadable_rows
    assert 10 < counted < len(SCATTERED)


def held_jobs(backend: Backend) -> int:
    """Count what is held by its user."""
    groups = backend.read_jobs(ALWAYS, NOW).groups
    return sum(group.jobs for group in groups if group.state == "PENDING" and group.reason == "JobHeldUser")
