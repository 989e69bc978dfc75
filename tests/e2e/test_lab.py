# SPDX-License-Identifier: Apache-2.0
"""Prove that the lab is a real cluster and leaves nothing behind."""

import pwd
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab import ALICE, BOB, CAROL, CommandFailed, LabUnavailable, SlurmLab
from lab.cgroups import has_cgroup_v1
from lab.config import LabSettings
from lab.processes import Process, identify
from lab.prometheus import Sample, Target, run_node_exporter, run_prometheus, run_pushgateway, run_victoria_metrics
from lab.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
CGROUP_ROOT = Path("/sys/fs/cgroup")
needs_cgroups = pytest.mark.skipif(not has_cgroup_v1(), reason="this machine has no cgroup v1 controllers")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give an empty folder that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="slurm-lab-") as name:
        yield Path(name)


def test_four_nodes_are_idle(clean_lab: SlurmLab) -> None:
    shown = clean_lab.run("scontrol", "--oneliner", "show", "node").splitlines()
    assert 4 == len(shown)
    assert all(" State=IDLE " in line and " CPUTot=8 " in line and " RealMemory=4000 " in line for line in shown)


def test_job_runs_as_its_user_and_completes(clean_lab: SlurmLab) -> None:
    job = clean_lab.submit(ALICE, "--output=who", script="id --user --name")
    clean_lab.wait_state(job, {"COMPLETED"})
    assert f"{ALICE}\n" == (clean_lab.layout.users / ALICE / "who").read_text()
    # slurmctld may send what it knows of a new job after the end of the job.
    accounted = f"{ALICE}|physics|COMPLETED"
    clean_lab.wait_for(lambda: accounted == accounting_line(clean_lab, job), what="the job to be accounted")


def test_user_of_two_accounts_charges_the_one_he_names(clean_lab: SlurmLab) -> None:
    job = clean_lab.submit(CAROL, "--account=chemistry", "--partition=debug,long", "--hold")
    shown = clean_lab.run("squeue", "--noheader", f"--jobs={job}", "--format=%u %a %P")
    assert f"{CAROL} chemistry debug,long" == shown.strip()


def test_account_of_others_is_refused(clean_lab: SlurmLab) -> None:
    with pytest.raises(CommandFailed, match="Invalid account"):
        clean_lab.submit(BOB, "--account=physics")


def test_gpu_and_licence_are_taken_by_a_job(clean_lab: SlurmLab) -> None:
    job = clean_lab.submit(BOB, "--partition=gpus", "--gres=gpu:1", "--licenses=matlab:3")
    clean_lab.wait_state(job, {"RUNNING"})
    used = clean_lab.run("sinfo", "--noheader", "--Node", "--partition=gpus", "--Format=GresUsed:|")
    assert {"gpu:a100:1(IDX:0)|", "gpu:a100:0(IDX:N/A)|"} == set(used.split())
    assert " Used=3 " in clean_lab.run("scontrol", "show", "licenses")


@needs_cgroups
def test_job_has_cgroups_with_its_memory_limit(clean_lab: SlurmLab) -> None:
    node = clean_lab.nodes[1]
    job = clean_lab.submit(ALICE, "--mem=200M", f"--nodelist={node}")
    uid = pwd.getpwnam(ALICE).pw_uid
    folders = {name: CGROUP_ROOT / name / f"slurm_{node}/uid_{uid}/job_{job}" for name in ("memory", "cpuacct")}
    task = "step_batch/task_0/cgroup.procs"
    clean_lab.wait_for(
        lambda: all((folder / task).is_file() and (folder / task).read_text() for folder in folders.values()),
        what="the job's processes in their cgroups",
    )
    assert 200 * 1024 * 1024 == int((folders["memory"] / "memory.limit_in_bytes").read_text())


@needs_cgroups
def test_job_beyond_its_memory_is_killed(clean_lab: SlurmLab) -> None:
    # tail keeps the endless line that it waits for in memory.
    job = clean_lab.submit(ALICE, "--mem=50M", script="tail /dev/zero")
    clean_lab.wait_state(job, {"OUT_OF_MEMORY"})


def test_frozen_controller_answers_nothing_until_it_goes_on(clean_lab: SlurmLab) -> None:
    clean_lab.suspend_controller()
    with pytest.raises(CommandFailed) as caught:
        clean_lab.run("sinfo", timeout=1)
    assert caught.value.status is None
    clean_lab.resume_controller()
    assert 4 == len(clean_lab.node_states())


def test_killed_controller_comes_back_with_its_jobs(clean_lab: SlurmLab) -> None:
    job = clean_lab.submit(ALICE, "--hold")
    old_pid = clean_lab.pids["slurmctld"]
    clean_lab.kill_controller()
    assert not psutil.pid_exists(old_pid)
    clean_lab.start_controller()
    assert {"PENDING"} == clean_lab.job_states(job)


@pytest.mark.parametrize("name", ["munged", "slurmdbd"])
def test_reset_revives_a_killed_daemon(clean_lab: SlurmLab, name: str) -> None:
    clean_lab.kill(name)
    assert name not in clean_lab.pids
    clean_lab.reset()
    assert name == psutil.Process(clean_lab.pids[name]).name()
    assert "lab" == clean_lab.run("sacctmgr", "--noheader", "--parsable2", "list", "cluster", "format=Cluster").strip()


def test_reset_wakes_a_drained_node(clean_lab: SlurmLab) -> None:
    node = clean_lab.nodes[0]
    clean_lab.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    assert "drained" == clean_lab.node_states()[node]
    clean_lab.reset()
    assert "idle" == clean_lab.node_states()[node]


def test_another_process_can_take_over_a_lab(clean_lab: SlurmLab) -> None:
    other = SlurmLab.attach(clean_lab.folder)
    assert clean_lab.pids == other.pids
    assert clean_lab.node_states() == other.node_states()


def test_shell_lines_point_commands_at_the_lab(clean_lab: SlurmLab) -> None:
    lines = output_of(sys.executable, "-m", "lab", "env", "--folder", str(clean_lab.folder))
    shown = output_of("sh", "-c", f"{lines}sinfo --noheader --Node --format=%N")
    assert set(clean_lab.nodes) == set(shown.split())


def test_second_lab_ends_without_a_trace_and_leaves_the_first_alone(clean_lab: SlurmLab, open_folder: Path) -> None:
    job = clean_lab.submit(ALICE)
    clean_lab.wait_state(job, {"RUNNING"})
    first_pids, first_cgroups = clean_lab.pids, node_cgroups(clean_lab)
    with SlurmLab(open_folder, LabSettings(node_count=1)) as second:
        stubborn = second.submit(BOB, script="trap '' TERM; while :; do sleep 1; done")
        second.wait_state(stubborn, {"RUNNING"})
        own_pids, second_names = set(second.pids.values()), second.nodes
        assert own_pids <= mentioning(open_folder)
        second.kill_controller()
    assert set() == mentioning(open_folder)
    assert not set(second_names) & set(clean_lab.nodes)
    assert not [path for name in second_names for path in CGROUP_ROOT.glob(f"*/slurm_{name}")]
    assert (first_pids, first_cgroups) == (clean_lab.pids, node_cgroups(clean_lab))
    assert {"RUNNING"} == clean_lab.job_states(job)


def test_lab_without_cgroups_runs_jobs_and_ends(slurm_lab: SlurmLab, open_folder: Path) -> None:
    with SlurmLab(open_folder, LabSettings(node_count=1, refuses_cgroups=True)) as plain:
        job = plain.submit(ALICE, script="sleep 1000 & sleep 1000")
        plain.wait_state(job, {"RUNNING"})
        assert set() == node_cgroups(plain)
    assert set() == mentioning(open_folder)


def test_closed_folder_is_refused_in_one_sentence(open_folder: Path) -> None:
    open_folder.chmod(0o700)
    with pytest.raises(LabUnavailable, match=r"^The .*\.$"):
        SlurmLab(open_folder / "lab").start()


def test_reused_process_id_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        ours = identify(child.pid)
        stranger = Process(pid=child.pid, start_ticks=ours.start_ticks - 1)
        stranger.send(signal.SIGKILL)
        assert not stranger.is_alive
        assert ours.is_alive
        ours.send(signal.SIGKILL)
        assert -signal.SIGKILL == child.wait(timeout=10)
    assert not ours.is_alive


def test_prometheus_scrapes_node_exporter_and_ends(tmp_path: Path) -> None:
    (tmp_path / "lab.prom").write_text('lab_answer{of="everything"} 42\n')
    with run_node_exporter(tmp_path) as exporter, run_prometheus(tmp_path / "db", scrape(exporter.url)) as prometheus:
        wait_until(lambda: prometheus.query("lab_answer"), "a first scrape", timeout_seconds=60)
        assert [Target(url=f"{exporter.url}/metrics", health="up", last_error="")] == prometheus.targets()
        answer = prometheus.query('sum by (of) (lab_answer{job="lab"})')
        assert [Sample(labels={"of": "everything"}, value=42.0)] == answer
    assert not psutil.pid_exists(exporter.pid)
    assert not psutil.pid_exists(prometheus.pid)


def test_pushgateway_keeps_what_is_pushed(tmp_path: Path) -> None:
    with run_pushgateway(tmp_path) as gateway:
        post(f"{gateway.url}/metrics/job/lab", b"lab_answer 42\n")
        assert b'lab_answer{instance="",job="lab"} 42\n' in gateway.get("/metrics")
    assert not psutil.pid_exists(gateway.pid)


def test_victoria_metrics_answers_queries(tmp_path: Path) -> None:
    with run_victoria_metrics(tmp_path) as victoria:
        post(f"{victoria.url}/api/v1/import/prometheus", b"lab_answer 42\n")
        victoria.get("/internal/force_flush")
        wait_until(lambda: victoria.query("lab_answer"), "the imported sample", timeout_seconds=60)
        assert [42.0] == [sample.value for sample in victoria.query("lab_answer")]
    assert not psutil.pid_exists(victoria.pid)


def scrape(url: str) -> str:
    """Write a Prometheus configuration with one target."""
    target = url.removeprefix("http://")
    return (
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: lab, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )


def post(url: str, body: bytes) -> None:
    """Send a body by POST, past any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "text/plain"}, method="POST")
    with opener.open(request, timeout=10) as answer:
        assert answer.status in (200, 202, 204)


def output_of(*argv: str) -> str:
    """Run a program from the top of the repository."""
    return subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True).stdout


def accounting_line(lab: SlurmLab, job: int) -> str:
    """Give what the accounting database knows of a job."""
    return lab.run("sacct", "--allocations", "-nP", f"--jobs={job}", "--format=User,Account,State").strip()


def node_cgroups(lab: SlurmLab) -> set[Path]:
    """Find the top cgroups of a lab's nodes."""
    return {path for name in lab.nodes for path in CGROUP_ROOT.glob(f"*/slurm_{name}")}


def mentioning(folder: Path) -> set[int]:
    """Find the processes that know a folder by their arguments or their environment."""
    found = set()
    for process in psutil.process_iter(["cmdline", "environ"]):
        known = [*(process.info["cmdline"] or ()), *(process.info["environ"] or {}).values()]
        if any(str(folder) in text for text in known):
            found.add(process.pid)
    return found
