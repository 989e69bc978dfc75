# SPDX-License-Identifier: Apache-2.0
"""The same cluster gives equal pages through every backend.

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

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab import ALICE, BOB, CAROL, SlurmLab, temporary_lab
from lab.config import LabSettings
from lab.rest import make_token, run_slurmrestd, run_slurmrestd_with_tokens, token_lines
from tests.e2e.controller_requests import count_requests
from tests.e2e.scrape import run_once, scrape, slurm_flags
from tests.processes import Samples, serving, until

BACKENDS = ("text", "json", "rest")
# Too many to be told in 64 characters, and without a step.
SCATTERED = tuple(number for number in range(300) if number * number % 7 in {1, 2})
# About the exporter itself, and a time that passes.
OWN = ("slurmscope_", "process_", "slurm_job_scrape_", "slurm_node_scrape_", "job_scrape_")
AGE = "slurm_partition_oldest_pending_age_seconds"


@pytest.fixture(scope="module")
def started_lab() -> Iterator[SlurmLab]:
    """Give a cluster that knows tokens.

    Not the cluster of all tests: a controller remembers ended jobs for minutes, and arrays that text and JSON tell
    differently would be among them.
    """
    with tempfile.TemporaryDirectory(prefix="slurm-lab-key-") as folder:
        settings = LabSettings(extra_lines=token_lines(Path(folder) / "key"))
        with temporary_lab(settings) as lab:
            yield lab


@pytest.fixture
def own_lab(started_lab: SlurmLab) -> SlurmLab:
    """Give that cluster without jobs and with idle nodes."""
    started_lab.reset()
    return started_lab


@pytest.fixture(scope="module")
def rest_url(started_lab: SlurmLab) -> Iterator[str]:
    """Run a slurmrestd for that cluster."""
    with run_slurmrestd(started_lab) as server:
        yield server.url


def backend_flags(name: str, rest_url: str) -> tuple[str, ...]:
    return (f"--slurm.backend={name}", *(("--slurm.rest-url", rest_url) if name == "rest" else ()))


def read(lab: SlurmLab, backend: str, rest_url: str, *collectors: str, is_success: bool = True) -> Samples:
    return scrape(lab, *collectors, flags=backend_flags(backend, rest_url), is_success=is_success)


def comparable(samples: Samples) -> Samples:
    """Return what does not depend on the exporter and on the moment of the scrape."""
    kept = {name: found for name, found in samples.items() if not name.startswith(OWN)}
    return Samples(dict, kept | {AGE: dict.fromkeys(samples[AGE], 0.0)})


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


def test_pages_are_equal_through_every_backend(own_lab: SlurmLab, rest_url: str) -> None:
    flags = (*slurm_flags(own_lab), "--slurm.poll-limit=0.1s", "--collector.nodes.partition-map")
    path = "/metrics?collect[]=jobs&collect[]=nodes"
    with ExitStack() as stack:
        exporters = [
            stack.enter_context(
                serving("cluster", *flags, *backend_flags(name, rest_url), environment=own_lab.environment)
            )
            for name in BACKENDS
        ]
        fill(own_lab)
        found: list[Samples] = []

        def are_equal() -> bool:
            time.sleep(0.5)
            found[:] = [comparable(exporter.samples(path)) for exporter in exporters]
            # Wait times are those of the four jobs that run and the two that ended; starts are counted with a delay.
            return found[0] == found[1] == found[2] and sum(found[0]["slurm_job_wait_seconds_count"].values()) == 6

        until(are_equal)

    # The counts of squeue itself, so that equal does not mean equally empty.
    states = own_lab.run("squeue", "--noheader", "--all", "--array", "--format=%T").split()
    counts = {(state,): states.count(state) for state in ("PENDING", "RUNNING")}
    assert counts.items() <= found[0]["slurm_jobs"].items()
    assert {("COMPLETED",), ("FAILED",), ("CANCELLED",)} <= found[0]["slurm_jobs"].keys()


def test_job_that_was_requeued_and_held_is_held_through_every_backend(own_lab: SlurmLab, rest_url: str) -> None:
    job = own_lab.submit(ALICE, script="sleep 600")
    own_lab.wait_state(job, {"RUNNING"})
    own_lab.run("scontrol", "requeuehold", str(job))
    own_lab.wait_state(job, {"PENDING"})
    assert "job requeued in held state" == own_lab.run("squeue", "-h", "-a", "-O", "Reason:").strip()

    for name in BACKENDS:
        found = read(own_lab, name, rest_url, "jobs")
        assert {("debug", "JobHeldUser"): 1} == found["slurm_partition_pending_jobs"], name
        assert {("debug", "user"): 1} == found["slurm_partition_held_jobs"], name
        assert {} == found[AGE], name


def test_json_costs_the_controller_one_request_less(own_lab: SlurmLab, rest_url: str) -> None:
    costs = {}
    for name in BACKENDS:
        before = count_requests(own_lab)
        read(own_lab, name, rest_url, "jobs", "nodes")
        costs[name] = count_requests(own_lab) - before
        del costs[name]["REQUEST_STATS_INFO"]

    for_json = {"REQUEST_JOB_INFO": 1, "REQUEST_NODE_INFO": 1, "REQUEST_PARTITION_INFO": 1}
    # squeue looks at the partitions too.
    assert {"text": for_json | {"REQUEST_PARTITION_INFO": 2}, "json": for_json, "rest": for_json} == costs


def test_draining_node_is_mixed_in_json_and_allocated_in_text(own_lab: SlurmLab, rest_url: str) -> None:
    node = own_lab.nodes[0]
    own_lab.wait_state(own_lab.submit(ALICE, f"--nodelist={node}"), {"RUNNING"})
    own_lab.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")

    for name, base_state in {"text": "allocated", "json": "mixed", "rest": "mixed"}.items():
        found = read(own_lab, name, rest_url, "nodes")
        assert (node, base_state) in found["slurm_node_state_info"], name
        assert 1 == found["slurm_node_count_per_state"]["draining",], name
        assert 7 == found["slurm_cpus"]["unusable",], name


def test_controller_that_is_down_is_a_failure_of_every_backend(own_lab: SlurmLab, rest_url: str) -> None:
    own_lab.kill_controller()
    try:
        with ThreadPoolExecutor(len(BACKENDS)) as pool:
            found = list(
                pool.map(lambda name: read(own_lab, name, rest_url, "jobs", "nodes", is_success=False), BACKENDS)
            )
    finally:
        own_lab.start_controller()

    refused = {("jobs", "refused"): 1, ("nodes", "refused"): 1}
    assert [refused] * len(BACKENDS) == [samples["slurmscope_reading_errors_total"] for samples in found]


def test_slurmrestd_on_a_port_requires_a_token(own_lab: SlurmLab, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    with run_slurmrestd_with_tokens(own_lab) as server:
        without_user = (*backend_flags("rest", server.url), "--slurm.rest-token-file", str(token_file))
        flags = (*without_user, f"--slurm.rest-user={ALICE}")
        assert "cannot read the token file" in run_once(own_lab, "nodes", flags=flags).stderr
        token_file.write_text("wrong")
        assert "Slurm reports" in run_once(own_lab, "nodes", flags=flags).stderr
        assert "answered 401" in run_once(own_lab, "nodes", flags=without_user).stderr

        token_file.write_text(f"SLURM_JWT={make_token(own_lab, ALICE)}\n")

        assert {(node,) for node in own_lab.nodes} == scrape(own_lab, "nodes", flags=flags)["slurm_node_cpus"].keys()


def test_last_task_of_a_step_is_left_out_by_squeue_alone(clean_lab: SlurmLab) -> None:
    clean_lab.submit(ALICE, "--array=0-30:3", "--hold")

    with run_slurmrestd(clean_lab) as server:
        counts = {name: held_jobs(read(clean_lab, name, server.url, "jobs")) for name in BACKENDS}

    tasks = len(range(0, 31, 3))
    assert {"text": tasks - 1, "json": tasks, "rest": tasks} == counts


def test_array_that_slurmrestd_has_cut_is_an_error(clean_lab: SlurmLab) -> None:
    with run_slurmrestd(clean_lab, environment={}) as server:
        read(clean_lab, "rest", server.url, "jobs")
        clean_lab.submit(ALICE, f"--array={','.join(map(str, SCATTERED))}", "--hold")
        flags = backend_flags("rest", server.url)
        done = run_once(clean_lab, "jobs", flags=flags)

    assert 1 == done.returncode
    assert "SLURM_BITSTR_LEN=0" in done.stderr


def held_jobs(samples: Samples) -> float:
    """Return how many jobs are held by their users."""
    return sum(count for (_, by), count in samples["slurm_partition_held_jobs"].items() if by == "user")
