# SPDX-License-Identifier: Apache-2.0
"""Slurm's own samples of real steps reach the agent through the plugin, which no job notices."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab import ALICE
from lab.config import LabSettings
from lab.prometheus import run_pushgateway
from tests.e2e.profiled_lab import (
    BUSY,
    CPU,
    PATIENCE_SECONDS,
    RESIDENT,
    TASKS,
    ProfiledLab,
    check_tasks,
    left,
    of_tasks,
    reports,
    run_profiled_lab,
    two_steps,
)
from tests.processes import serving, until, values

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def profiled() -> Iterator[ProfiledLab]:
    """Start a cluster of one node with the plugin, built for the installed Slurm."""
    with run_profiled_lab(settings_with_plugin) as running:
        yield running


@pytest.fixture
def work(profiled: ProfiledLab) -> Path:
    """Return an empty folder that jobs may write to."""
    return profiled.empty_work()


def settings_with_plugin(folder: Path) -> LabSettings:
    """Build the plugin, and let Slurm load it."""
    built = subprocess.run(
        [REPOSITORY / "plugin" / "build"], capture_output=True, text=True, timeout=400, check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PLUGIN_BUILD": str(folder / "plugin")},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    system = next(Path("/usr/lib").glob("*/slurm-wlm"))
    return LabSettings(
        node_count=1,
        extra_lines=(
            f"PluginDir={system}:{folder / 'plugin'}",
            "AcctGatherProfileType=acct_gather_profile/prometheus",
            "JobAcctGatherFrequency=task=2",
        ),
        extra_files={
            "acct_gather.conf": f"ProfilePrometheusSocket={folder / 'agent.sock'}\n"
            "ProfilePrometheusHost=http://gateway:9091\n"  # of the original plugin
        },
    )


@pytest.mark.usefixtures("work")
def test_tasks_agree_with_the_kernel_and_sstat(profiled: ProfiledLab) -> None:
    with serving("node", *profiled.flags()) as agent:
        check_tasks(profiled, agent)


def test_daemons_show_the_configuration_and_warn(profiled: ProfiledLab) -> None:
    shown = dict(
        [word.strip() for word in line.split("=", 1)]
        for line in profiled.lab.run("scontrol", "show", "config").splitlines()
        if line.startswith("ProfilePrometheus")
    )
    logs = [profiled.lab.folder / "log" / name for name in ("slurmctld.log", f"slurmd-{profiled.lab.nodes[0]}.log")]
    warning = "ProfilePrometheusHost in acct_gather.conf is ignored"

    assert {"ProfilePrometheusSocket": str(profiled.socket), "ProfilePrometheusDefault": "none"} == shown
    # Once each; the processes of steps, which log there too, do not repeat it.
    assert [1, 1] == [log.read_text(errors="replace").count(warning) for log in logs]


def test_totals_continue_after_a_restart_of_the_agent(profiled: ProfiledLab, work: Path) -> None:
    with serving("node", *profiled.flags()) as agent:
        job = profiled.submit(two_steps(work), "--profile=task")
        reported = reports(work)
        until(
            lambda: all(of_tasks(agent, CPU, job).get(t, 0) >= 0.9 * reported[t]["cpu"] for t in TASKS),
            PATIENCE_SECONDS,
        )
        before = of_tasks(agent, CPU, job)
        agent.end(signal.SIGKILL)  # its socket stays, and no process listens on it
    with serving("node", *profiled.flags()) as agent:
        until(lambda: of_tasks(agent, CPU, job).keys() == before.keys(), PATIENCE_SECONDS)
        after = of_tasks(agent, CPU, job)
        assert all(after[task] >= before[task] for task in TASKS)
        profiled.lab.run("scancel", str(job))
        until(lambda: not left(agent), PATIENCE_SECONDS)


def test_pushgateway_has_running_steps_only(profiled: ProfiledLab, work: Path, tmp_path: Path) -> None:
    """Also if the agent was killed and the job ended before the next one started."""
    with run_pushgateway(tmp_path) as gateway:
        flags = profiled.flags("--profile.push", gateway.url)

        def groups() -> set[str]:
            return {group["labels"]["job"] for group in json.loads(gateway.get("/api/v1/metrics"))["data"]}

        with serving("node", *flags) as agent:
            job = profiled.submit(two_steps(work), "--profile=task")
            reported = reports(work)
            name = {"job": str(job), "instance": profiled.lab.nodes[0], "step": "1", "task": "1"}
            wanted = frozenset(name.items())

            def resident() -> float:
                families = text_string_to_metric_families(gateway.get("/metrics").decode())
                samples = (sample for family in families if family.name == "RSS" for sample in family.samples)
                return next((1024 * s.value for s in samples if wanted == frozenset(s.labels.items())), 0.0)

            until(lambda: resident() >= 0.95 * reported["1", "1"]["anonymous"], PATIENCE_SECONDS)
            assert resident() <= 1.05 * reported["1", "1"]["resident"]
            agent.end(signal.SIGKILL)
        assert {str(job)} == groups()
        (work / "end").touch()
        profiled.lab.wait_state(job, {"COMPLETED"})
        with serving("node", *flags):
            until(lambda: not groups(), PATIENCE_SECONDS)
            other = profiled.submit(two_steps(work), "--profile=task")
            until(lambda: groups() == {str(other)}, PATIENCE_SECONDS)
            profiled.lab.run("scancel", str(other))
            until(lambda: not groups(), PATIENCE_SECONDS)


def test_killed_job_leaves_nothing(profiled: ProfiledLab, work: Path) -> None:
    with serving("node", *profiled.flags()) as agent:
        job = profiled.submit(two_steps(work), "--profile=task")
        until(lambda: of_tasks(agent, RESIDENT, job).keys() == set(TASKS), PATIENCE_SECONDS)
        profiled.lab.run("scancel", "--signal=KILL", "--full", str(job))
        until(lambda: not left(agent), PATIENCE_SECONDS)
        assert values(agent.get()[1], "slurmscope_profile_events_total")[("step_end",)] >= 3  # with the batch step


def test_end_of_a_step_that_was_not_received_is_noticed(profiled: ProfiledLab, work: Path) -> None:
    """A stopped agent's queue is full long before the steps end."""
    with serving("node", *profiled.flags()) as agent:
        job = profiled.submit(two_steps(work), "--profile=task")
        until(lambda: of_tasks(agent, RESIDENT, job).keys() == set(TASKS), PATIENCE_SECONDS)
        agent.process.send_signal(signal.SIGSTOP)
        profiled.lab.run("scancel", str(job))
        profiled.lab.wait_state(job, {"CANCELLED"})
        agent.process.send_signal(signal.SIGCONT)
        until(lambda: not left(agent), PATIENCE_SECONDS)


def test_task_that_ended_keeps_no_core_busy(profiled: ProfiledLab, work: Path) -> None:
    with serving("node", *profiled.flags("--node.grace", "1h")) as agent:
        task = f"[ $SLURM_PROCID = 1 ] || exit 0; exec python3 {work}/profiled_task.py {work}"
        job = profiled.submit(f"srun --ntasks=2 sh -c 'sleep 5; {task}'", "--profile=task")
        until(lambda: of_tasks(agent, CPU, job).keys() == {("0", "0"), ("0", "1")}, PATIENCE_SECONDS)
        until(lambda: of_tasks(agent, BUSY, job).keys() == {("0", "1")}, PATIENCE_SECONDS)
        assert {("0", "0"), ("0", "1")} == of_tasks(agent, RESIDENT, job).keys() == of_tasks(agent, CPU, job).keys()


def test_job_without_profile_sends_nothing(profiled: ProfiledLab, work: Path) -> None:
    with serving("node", *profiled.flags("--node.grace", "1h")) as agent:
        job = profiled.submit("srun sleep 3")
        profiled.lab.wait_state(job, {"COMPLETED"})
        assert {0.0} == set(values(agent.get()[1], "slurmscope_profile_events_total").values())


def test_user_cannot_forge_samples(profiled: ProfiledLab, work: Path) -> None:
    """Even if the permissions of the socket were wrong."""
    words = "slurm-profile/1 event=sample job=1 step=0 node=n1 uid=0 start=1 seq=1 lost=0 series=Tasks task=0 time=1"
    send = (
        "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), sys.argv[1])"
    )
    datagram = words.replace(" ", "\t") + "\tRSS:u=1:1"

    def forge(user: str) -> int:
        argv = ["python3", "-c", send, str(profiled.socket), datagram]
        return subprocess.run(argv, user=user, cwd="/", timeout=60, check=False, stderr=subprocess.DEVNULL).returncode

    with serving("node", *profiled.flags()) as agent:
        assert forge(ALICE) != 0
        profiled.socket.chmod(0o666)
        assert forge(ALICE) == 0
        until(lambda: values(agent.get()[1], "slurmscope_profile_rejected_total").get(("sender",)) == 1)
        assert [] == left(agent)
        assert forge("root") == 0
        until(lambda: left(agent))


def test_job_takes_no_longer_whatever_the_agent_does(profiled: ProfiledLab, work: Path) -> None:
    """Side by side: without a profile, with no agent, with a stopped one whose queue is full."""

    def run_seconds(profile: str) -> float:
        began = time.monotonic()
        step = ("srun", "--ntasks=4", "--mem=400M", f"--profile={profile}", "--acctg-freq=task=1", "sleep", "4")
        profiled.lab.run(*step, user=ALICE, timeout=PATIENCE_SECONDS)
        return time.monotonic() - began

    stopped, plain, absent = [], [], []
    for _ in range(3):
        with serving("node", *profiled.flags()) as agent:
            agent.process.send_signal(signal.SIGSTOP)
            stopped.append(run_seconds("task"))
            plain.append(run_seconds("none"))
        absent.append(run_seconds("task"))
    # Other programs of the machine delay some of the jobs; waiting for an agent would delay each of them.
    assert min(stopped) < 1.5 * min(plain)
    assert min(absent) < 1.5 * min(plain)
