# SPDX-License-Identifier: Apache-2.0
"""Real jobs of known behaviour show the numbers of independent oracles: psutil, sstat, the kernel's own files."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lab import ALICE, BOB, SlurmLab
from lab.prometheus import Server, run_pushgateway
from tests.e2e import known_job
from tests.processes import Exporter, run_slurmscope, running, serving, until, values

SCRIPT = Path(known_job.__file__)
MIB = 1024 * 1024


# The agent sees every Slurm of this machine.
OWN_NODES: set[str] = set()


@pytest.fixture(autouse=True, scope="module")
def own_nodes(slurm_lab: SlurmLab) -> None:
    OWN_NODES.update(slurm_lab.nodes)


def values_of(page: str, name: str, job: int) -> dict[tuple[str, ...], float]:
    """Return the samples of one job of our lab without the labels that name it."""
    return {
        labels[2:]: value
        for labels, value in values(page, name).items()
        if labels[0] == str(job) and labels[1] in OWN_NODES
    }


def value_of(page: str, name: str, job: int) -> float:
    (value,) = values_of(page, name, job).values()
    return value


@dataclass(frozen=True, kw_only=True)
class Known:
    """Hold the known job: its number, its own report, our page, and what the oracles said at that moment."""

    job: int
    report: dict[str, float]
    page: str
    resident_bytes: int
    files: int
    threads: int
    sstat_resident_bytes: float


@pytest.fixture(scope="module")
def known(slurm_lab: SlurmLab) -> Known:
    """Run the known job of one user, and ask everybody about it."""
    lab = slurm_lab
    lab.reset()
    folder = lab.folder / "work" / "known"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    shutil.copy(SCRIPT, folder / "known_job.py")
    job = lab.submit(
        ALICE, "--ntasks=1", "--cpus-per-task=2", "--mem=900M", script=f"exec python3 {folder}/known_job.py {folder}"
    )
    with serving("node") as agent:
        until(lambda: agent.get()[0] == 200 and (folder / "report.json").exists(), 120)
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        process = psutil.Process(int(report["pid"]))
        until(lambda: not process.children())
        # A reading may be a second old, from when the workers still shared the memory of their parent.
        agent.get()
        time.sleep(2.0)
        until(lambda: values_of(agent.get()[1], "jobs_processes", job).get((), 99) < 3)
        _, page = agent.get()
    # Slurm samples once a second and tells kilobytes.
    said = lab.run("sstat", "--noheader", "--parsable2", f"--jobs={job}.batch", "--format=MaxRSS").strip()
    return Known(
        job=job,
        report=report,
        page=page,
        resident_bytes=process.memory_info().rss,
        files=process.num_fds(),
        threads=process.num_threads(),
        # A whole number of mebibytes is shown as such.
        sstat_resident_bytes=float(said[:-1]) * {"K": 1024, "M": MIB}[said[-1]],
    )


def test_cpu_time_is_what_the_job_spent(known: Known) -> None:
    job, page = known.job, known.page

    spent = value_of(page, "jobs_cpu_seconds_total", job)

    assert known.report["cpu_seconds"] == pytest.approx(spent, rel=0.1)
    assert spent >= 2 * known_job.BUSY_SECONDS * 0.95
    by_core = values_of(page, "jobs_cpu_core_seconds_total", job)
    if by_core:  # version 1 tells by core
        assert spent == pytest.approx(sum(by_core.values()), rel=0.05)
    assert value_of(page, "jobs_cpu_time_total", job) == spent


def test_memory_is_what_the_kernel_and_psutil_say(known: Known) -> None:
    job, page = known.job, known.page

    resident = value_of(page, "jobs_memory_rss_bytes", job)

    assert known.resident_bytes == pytest.approx(resident, rel=0.15)
    assert known_job.RESIDENT <= resident
    assert known_job.RESIDENT <= value_of(page, "jobs_memory_anon_bytes", job)
    assert 900 * MIB == value_of(page, "jobs_memory_limit_bytes", job)
    assert value_of(page, "jobs_memory_current_bytes", job) <= value_of(page, "jobs_memory_peak_bytes", job)
    assert known.sstat_resident_bytes == pytest.approx(resident, rel=0.25)


def test_what_an_ended_child_wrote_still_counts(known: Known) -> None:
    job, page = known.job, known.page

    written = value_of(page, "jobs_io_write_bytes_total", job)

    assert known_job.WRITTEN <= written <= known_job.WRITTEN * 1.1
    stored = value_of(page, "jobs_storage_write_bytes_total", job)
    assert stored / MIB == pytest.approx(value_of(page, "jobs_write_mb", job))


def test_files_threads_and_processes_are_counted(known: Known) -> None:
    job, page = known.job, known.page

    assert known.files <= value_of(page, "jobs_open_files", job)
    assert known_job.FILES <= value_of(page, "jobs_distinct_files", job) <= known_job.FILES + 10
    assert known_job.THREADS == known.threads
    threads = values_of(page, "jobs_threads", job)
    assert known_job.THREADS <= sum(threads.values()) <= known_job.THREADS + 5
    assert known_job.THREADS == max(values_of(page, "jobs_thread_count", job).values())


def test_owner_is_told(known: Known) -> None:
    job, page = known.job, known.page

    (labels,) = values_of(page, "jobs_info", job)

    assert (ALICE, "physics", "debug", "false") == (labels[0], labels[2], labels[3], labels[4])


def wait_for_kill(agent: Exporter, job: int) -> str:
    until(lambda: values_of(agent.get()[1], "jobs_memory_events_total", job).get(("oom_kill",), 0) >= 1, 60)
    return agent.get()[1]


def test_oom_kill_is_counted_and_outlives_the_job(clean_lab: SlurmLab) -> None:
    with serving("node", "--node.interval=0.1s") as agent:
        job = clean_lab.submit(BOB, "--mem=80M", script="python3 -c 'bytearray(500_000_000)'; sleep 2")
        page = wait_for_kill(agent, job)
        clean_lab.wait_state(job, {"OUT_OF_MEMORY"})
        _, after = agent.get()

    assert 80 * MIB == value_of(page, "jobs_memory_limit_bytes", job)
    assert (
        values_of(page, "jobs_memory_events_total", job)["oom_kill",]
        <= values_of(after, "jobs_memory_events_total", job)["oom_kill",]
    )


def short_job(lab: SlurmLab, agent: Exporter) -> tuple[int, str]:
    """Run a job of half a second of CPU between two scrapes, and return its number and the page after it."""
    agent.get()
    spin = "import time\nwhile time.process_time() < 0.5: pass"
    job = lab.submit(ALICE, script=f'exec python3 -c "{spin}"')
    lab.wait_state(job, {"COMPLETED"})
    # Slurm calls a job completed before it has removed its cgroups.
    until(lambda: all(labels[-1] == "true" for labels in values_of(agent.get()[1], "jobs_info", job)))
    return job, agent.get()[1]


def test_job_shorter_than_the_time_between_two_scrapes_leaves_its_totals(clean_lab: SlurmLab) -> None:
    with serving("node") as agent:
        # Where other tests take all cores the agent may wake too late for one such job, not for five.
        for _ in range(5):
            job, page = short_job(clean_lab, agent)
            if sum(values_of(page, "jobs_cpu_seconds_total", job).values()) >= 0.4:
                break

    assert 0.4 <= value_of(page, "jobs_cpu_seconds_total", job) <= 3
    ((*_, has_ended),) = values_of(page, "jobs_info", job)
    assert "true" == has_ended


def test_agent_without_capabilities_tells_cgroups_and_says_what_is_missing(clean_lab: SlurmLab) -> None:
    """Root without capabilities may look into other users' processes no more than anybody."""
    job = clean_lab.submit(ALICE, "--mem=200M", script="sleep 600")
    clean_lab.wait_state(job, {"RUNNING"})
    powerless = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")
    with serving("node", prefix=powerless) as agent:
        until(lambda: values_of(agent.get()[1], "jobs_processes", job))
        _, page = agent.get()

    assert 200 * MIB == value_of(page, "jobs_memory_limit_bytes", job)
    assert 0 <= value_of(page, "jobs_cpu_seconds_total", job)
    assert 1 <= value_of(page, "jobs_processes", job)
    for name in ("jobs_io_write_bytes_total", "jobs_write_mb", "jobs_open_files", "jobs_uses_scratch"):
        assert {} == values_of(page, name, job)
    available = values(page, "slurmscope_source_available")
    assert (0, 0, 1, 1) == tuple(
        available[source,] for source in ("process_io", "process_environment", "cgroup_cpu", "cgroup_memory")
    )


def labels_of(gateway: Server) -> list[str]:
    return re.findall(r'slurm_node="[^"]*"', gateway.get("/metrics").decode())


def test_pushed_group_goes_when_the_last_job_has_ended(clean_lab: SlurmLab, tmp_path: Path) -> None:
    with run_pushgateway(tmp_path) as gateway:
        flags = (
            "--output.push",
            gateway.url,
            "--interval=0.3s",
            "--node.grace=1s",
            "--output.push-grouping=instance=n1",
        )
        job = clean_lab.submit(ALICE, script="sleep 600")
        clean_lab.wait_state(job, {"RUNNING"})
        with running("node", *flags) as agent:
            until(lambda: f'slurm_job="{job}"' in gateway.get("/metrics").decode())
            assert [] == agent.addresses
            clean_lab.cancel_all()
            until(lambda: not {f'slurm_node="{node}"' for node in OWN_NODES} & set(labels_of(gateway)), 120)
            assert 0 == agent.end()
        until(lambda: 'instance="n1"' not in gateway.get("/metrics").decode())


def test_doctor_finds_jobs_and_privileges(clean_lab: SlurmLab) -> None:
    clean_lab.wait_state(clean_lab.submit(ALICE), {"RUNNING"})

    done = run_slurmscope("doctor", "node")

    assert "ok      capabilities: present" in done.stdout
    assert "ok      layout: jobs are detected by cgroups v1" in done.stdout
