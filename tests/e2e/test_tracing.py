# SPDX-License-Identifier: Apache-2.0
"""Real jobs send samples of their processes, through tokens and sockets; another user tries the same for them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from lab import ALICE, BOB, SlurmLab
from lab.config import LabSettings
from lab.errors import CommandFailed
from lab.prometheus import Sample, run_prometheus
from slurmscope.trace.tokens import KeyFile, check_token, rotate_keys
from tests.processes import Exporter, serving, until

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PYTHON = "/usr/bin/python3"
RSS = "slurm_trace_memory_rss_bytes"
SCRAPES = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: trace, static_configs: [{{targets: ["{address}"]}}]}}]
"""
# As a process of the task, and by its own PID: what a wrapper does. Credential and address are arguments of curl.
TASK = """
echo "$SLURMD_NODENAME $$ $SLURM_PROCID" >> processes
while :; do
  read -r _ rss _ < /proc/$$/statm
  curl -s -o /dev/null -w '%{{http_code}}\\n' -H 'Content-Type: application/json' {arguments} -d "{{
    \\"job_id\\": $SLURM_JOB_ID, \\"pid\\": $$, \\"rank\\": $SLURM_PROCID, \\"step_id\\": \\"$SLURM_STEP_ID\\",
    \\"command\\": \\"sh\\", \\"mem\\": $((rss * 4096)), \\"hostname\\": \\"$SLURMD_NODENAME\\",
    \\"username\\": \\"$USER\\", \\"interval\\": 2}}" >> answers
  sleep 1
done
"""

# Its PID is that of the command, also when it becomes another program.
COMMAND = 'echo "$SLURMD_NODENAME $$ $SLURM_PROCID" >> processes; exec sleep 300'


class TracedLab:
    """Hold a cluster of two nodes whose Prolog and TaskProlog hand out tokens."""

    def __init__(self, folder: Path) -> None:
        """Write the scripts that slurmd runs; they call those of deploy/ with this test's paths."""
        self.key_file = folder / "trace.key"
        self.tokens = folder / "tokens"
        self.socket = folder / "trace.sock"
        rotate_keys(self.key_file)
        self.user_program = _install_for_users(folder)
        program = _script(folder / "slurmscope", f'PYTHONPATH={ROOT}/src exec {sys.executable} -m slurmscope "$@"')
        deployed = {name: Path(shutil.copy(ROOT / "deploy" / name, folder)) for name in SCRIPTS}
        arguments = {
            "prolog-slurmscope": f"{self.tokens} {program} {self.key_file}",
            "taskprolog-slurmscope": f"{self.tokens} {folder}/none",
            "epilog-slurmscope": f"/sys/fs/cgroup {self.tokens}",
        }
        lines = [
            f"{key}={_script(folder / key, f'exec /bin/sh {deployed[name]} {arguments[name]}')}"
            for name, key in SCRIPTS.items()
        ]
        self._folder = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
        settings = LabSettings(node_count=2, extra_lines=(*lines, "PrologFlags=Alloc"))
        self.lab = SlurmLab(self._folder, settings)

    def submit_four_tasks(self, arguments: str) -> int:
        """Start four tasks on two nodes, each sending samples by curl with these arguments."""
        task = _script(self._folder / "users" / ALICE / "task", TASK.format(arguments=arguments))
        return self.lab.submit(ALICE, "-N2", "--ntasks-per-node=2", script=f"srun {task}")

    def submit_traced_commands(self, arguments: str) -> int:
        """Start four tasks on two nodes, each under ``slurmscope run`` with these arguments."""
        task = _script(self._folder / "users" / ALICE / "task", COMMAND)
        return self.lab.submit(
            ALICE, "-N2", "--ntasks-per-node=2", script=f"srun {self.user_program} run -q {arguments} -- sh {task}"
        )

    def lines(self, name: str, user: str = ALICE) -> list[str]:
        """Return the lines of a file that a job wrote."""
        path = self._folder / "users" / user / name
        return path.read_text().splitlines() if path.exists() else []

    def post(self, user: str, sample: dict[str, object], *arguments: str) -> tuple[int, str]:
        """Post a sample by curl as a user; return status and code."""
        body = json.dumps(sample)
        json_type = ("-H", "Content-Type: application/json")
        answer = self.lab.run("curl", "-s", "-w", "\n%{http_code}", *json_type, "-d", body, *arguments, user=user)
        text, _, status = answer.rpartition("\n")
        return int(status), json.loads(text)["code"] if text else ""

    def munge(self, user: str, sample: dict[str, object]) -> tuple[str, str]:
        """Return the arguments of curl for a munge credential of a user for a sample."""
        digest = hashlib.sha256(json.dumps(sample).encode()).hexdigest()
        made = self.lab.run("munge", f"--socket={self.lab.layout.munge_socket}", "--string", digest, user=user)
        return "-H", f"Authorization: Munge {made.strip()}"

    @contextmanager
    def exporter(self, *flags: str) -> Iterator[Exporter]:
        """Run the cluster exporter with its trace endpoint, and everything soon forgotten."""
        slurm = ("--slurm.bin-path", str(self.lab.bin_path), "--slurm.poll-limit", "1s")
        trace = ("--trace.enabled", "--trace.key-file", str(self.key_file), "--trace.grace", "1s", "--trace.rate", "2s")
        with serving("cluster", *slurm, *trace, *flags, environment=self.lab.environment) as exporter:
            yield exporter

    @contextmanager
    def agent(self, *flags: str) -> Iterator[Exporter]:
        """Run the node agent with its socket: one for both nodes, which share this machine."""
        with serving("node", "--trace.socket", str(self.socket), "--node.grace", "1s", *flags) as agent:
            yield agent


SCRIPTS = {"prolog-slurmscope": "Prolog", "taskprolog-slurmscope": "TaskProlog", "epilog-slurmscope": "Epilog"}


def _install_for_users(folder: Path) -> Path:
    """Copy slurmscope and click to where users of the lab may read them; our own Python may be out of their reach."""
    library = folder / "library"
    shutil.copytree(ROOT / "src" / "slurmscope", library / "slurmscope")
    shutil.copytree(Path(click.__file__).parent, library / "click")
    return _script(folder / "slurmscope-for-users", f'PYTHONPATH={library} exec {SYSTEM_PYTHON} -m slurmscope "$@"')


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def started_lab() -> Iterator[TracedLab]:
    """Start one cluster for all tests of this file."""
    with tempfile.TemporaryDirectory(prefix="slurmscope-trace-") as folder:
        Path(folder).chmod(0o755)
        traced = TracedLab(Path(folder))
        try:
            traced.lab.start()
            yield traced
        finally:
            traced.lab.destroy()


@pytest.fixture
def traced(started_lab: TracedLab) -> TracedLab:
    """Give the cluster without jobs, and without what earlier ones wrote."""
    started_lab.lab.reset()
    for user in (ALICE, BOB):
        for file in (started_lab.lab.layout.users / user).iterdir():
            file.unlink()
    return started_lab


def assert_one_series_per_process(traced: TracedLab, exporter: Exporter, job: int, folder: Path, way: str) -> None:
    """Let a real Prometheus scrape four traced tasks until they end, and compare with what the tasks wrote."""
    with run_prometheus(folder, SCRAPES.format(address=exporter.addresses[0])) as prometheus:
        series: list[Sample] = []

        def has_four() -> bool:
            series[:] = prometheus.query(RSS)
            return 4 == len(series)

        until(has_four)
        wrote = {(node, pid, rank) for node, pid, rank in map(str.split, traced.lines("processes"))}
        assert 4 == len(wrote)
        hosts = set(traced.lab.nodes)
        if way == "socket" and not traced.lab.layout.uses_cgroups:
            # Without cgroups nothing says on which of the nodes of this machine a process is.
            here = socket.gethostname().partition(".")[0]
            wrote, hosts = {(here, pid, rank) for _, pid, rank in wrote}, {here}
        found = {(s.labels["slurm_node"], s.labels["pid"], s.labels["rank"]) for s in series}
        assert wrote == found
        assert hosts == {host for host, _, _ in found}
        assert {(str(job), "sh", "0")} == {
            (s.labels["slurm_job"], s.labels["command"], s.labels["step"]) for s in series
        }
        assert all(100_000 < s.value < 50_000_000 for s in series)
        traced.lab.run("scancel", str(job))
        until(lambda: not prometheus.query('{__name__=~"slurm_(trace|proc)_.+"}'))


def test_two_nodes_send_with_their_tokens(traced: TracedLab, tmp_path: Path) -> None:
    with traced.exporter() as exporter:
        url = f"http://{exporter.addresses[0]}/trace"
        job = traced.submit_four_tasks(f'-H "Authorization: Bearer $SLURMSCOPE_TRACE_TOKEN" {url}')
        assert_one_series_per_process(traced, exporter, job, tmp_path, "token")
        assert {"204"} >= {line for line in traced.lines("answers") if line not in ("404", "503", "000")}
        until(lambda: not list(traced.tokens.iterdir()))


def test_two_nodes_send_through_the_socket_of_the_agent(traced: TracedLab, tmp_path: Path) -> None:
    with traced.agent() as agent:
        job = traced.submit_four_tasks(f"--unix-socket {traced.socket} http://localhost/")
        assert_one_series_per_process(traced, agent, job, tmp_path, "socket")
        assert {"204"} == set(traced.lines("answers"))


def test_commands_send_their_own_samples_with_tokens(traced: TracedLab, tmp_path: Path) -> None:
    with traced.exporter() as exporter:
        endpoint = f"--endpoint {exporter.addresses[0]} --trace.socket /nonexistent"
        job = traced.submit_traced_commands(f"--sample-rate 1 {endpoint}")
        assert_one_series_per_process(traced, exporter, job, tmp_path, "token")


def test_commands_send_their_own_samples_through_the_socket(traced: TracedLab, tmp_path: Path) -> None:
    with traced.agent() as agent:
        job = traced.submit_traced_commands(f"--sample-rate 1 --trace.socket {traced.socket}")
        assert_one_series_per_process(traced, agent, job, tmp_path, "socket")


def test_documented_joins_find_the_job_of_a_traced_process(traced: TracedLab, tmp_path: Path) -> None:
    """Each expression of the documentation, over the series of four processes of a job with four CPUs."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    section = text.partition("## Labels of jobs and nodes")[2].partition("\n## ")[0]
    whose, share, older = re.findall(r"```promql\n(.*?)```", section, re.DOTALL)
    with traced.exporter("--collector.job_info") as exporter:
        job = traced.submit_traced_commands(
            f"--sample-rate 1 --endpoint {exporter.addresses[0]} --trace.socket /nonexistent"
        )
        with run_prometheus(tmp_path, SCRAPES.format(address=exporter.addresses[0])) as prometheus:
            until(lambda: 4 == len(prometheus.query(RSS)))
            found = prometheus.query(whose)
            listed = traced.lab.run("squeue", "-h", "-j", str(job), "-o", "%u %a %P %C").split()
            assert {(listed[0], listed[1], listed[2])} == {
                (s.labels["user"], s.labels["account"], s.labels["partition"]) for s in found
            }
            assert 4 == len({(s.labels["slurm_node"], s.labels["pid"]) for s in found})
            (used,) = prometheus.query(share)
            cores = prometheus.query("sum(slurm_trace_cpu_cores)")[0].value
            assert str(job) == used.labels["slurm_job"]
            assert pytest.approx(cores / int(listed[3]), abs=0.2) == used.value
            # Both are of the same samples: the older name is the sum over all processes of the job.
            assert [(str(job), 1.0)] == [(s.labels["slurm_job"], s.value) for s in prometheus.query(older)]


@pytest.mark.parametrize("way", ["token", "socket"])
def test_every_component_of_a_heterogeneous_job_is_traced(traced: TracedLab, way: str) -> None:
    with traced.exporter() as exporter, traced.agent() as agent:
        endpoint = f"--endpoint {exporter.addresses[0]} --trace.socket /nonexistent"
        options = {"token": endpoint, "socket": f"--trace.socket {traced.socket}"}[way]
        run = f"{traced.user_program} run -q --sample-rate 1 {options} -- sleep 300"
        job = traced.lab.submit(ALICE, "-N1", "-n1", ":", "-N1", "-n1", script=f"srun --het-group=0,1 {run}")
        page = exporter if way == "token" else agent
        found: set[tuple[str, ...]] = set()

        def has_two() -> bool:
            found.clear()
            found.update(page.values(RSS))
            return 2 == len(found)

        until(has_two)
        listed = traced.lab.run("squeue", "-h", "-t", "RUNNING", "-o", "%A %N").splitlines()
        components = {tuple(line.split()) for line in listed}
        assert {str(job), str(job + 1)} == {labels[0] for labels in found}
        if way == "token" or traced.lab.layout.uses_cgroups:
            assert components == {labels[:2] for labels in found}


def test_agent_forwards_to_the_endpoint(traced: TracedLab, tmp_path: Path) -> None:
    if not traced.lab.layout.uses_cgroups:
        pytest.skip("without cgroups nothing says on which of the nodes of this machine a process is")
    with traced.exporter() as exporter:
        forward = ("--trace.forward", f"http://{exporter.addresses[0]}/trace", "--trace.key-file", str(traced.key_file))
        with traced.agent(*forward) as agent:
            job = traced.submit_four_tasks(f"--unix-socket {traced.socket} http://localhost/")
            assert_one_series_per_process(traced, exporter, job, tmp_path, "token")
            assert {} == agent.values(RSS)


def test_another_user_cannot_send_for_a_job(traced: TracedLab) -> None:
    lab = traced.lab
    foreign = lab.submit(ALICE, "-N1", script="sleep 300")
    own = lab.submit(BOB, "-N1", script='echo "$SLURMSCOPE_TRACE_TOKEN" > token; sleep 300')
    lab.wait_state(foreign, {"RUNNING"})
    lab.wait_state(own, {"RUNNING"})
    until(lambda: traced.lines("token", BOB))
    (token,) = traced.lines("token", BOB)
    claims = check_token(token, KeyFile(traced.key_file).keys(), 0.0)
    assert claims is not None
    node = lab.run("squeue", "-h", "-j", str(foreign), "-o", "%N").strip()
    sample: dict[str, object] = {"job_id": foreign, "pid": 1, "mem": 1, "hostname": node}

    with traced.exporter() as exporter, traced.agent() as agent:
        url = f"http://{exporter.addresses[0]}/trace"

        def bearer(text: str) -> tuple[int, str]:
            return traced.post(BOB, sample, "-H", f"Authorization: Bearer {text}", url)

        # Everything that he has: nothing, his own token, changed tokens, his munge credential, hers used again.
        assert (401, "way") == traced.post(BOB, sample, url)
        assert (403, "owner") == bearer(token)
        assert (401, "credential") == bearer(token.replace(f"/{own}/", f"/{foreign}/"))
        assert (403, "owner") == traced.post(BOB, sample, *traced.munge(BOB, sample), url)
        used = traced.munge(ALICE, {"job_id": foreign})
        assert (401, "credential") == traced.post(BOB, sample, *used, url)
        # Her token is on the node, where he may not read it.
        until(lambda: list(traced.tokens.glob(f"{foreign}.*")))
        (file,) = traced.tokens.glob(f"{foreign}.*")
        with pytest.raises(CommandFailed, match="Permission denied"):
            lab.run("cat", str(file), user=BOB)
        # The socket: from outside any job, and from his own job.
        through_socket = ("--unix-socket", str(traced.socket), "http://localhost/")
        assert (403, "job") == traced.post(BOB, sample, *through_socket)
        curl = f"curl -s -H 'Content-Type: application/json' -d '{json.dumps(sample)}' {' '.join(through_socket)}"
        lab.submit(BOB, "-N1", script=f"{curl} > answer")
        until(lambda: traced.lines("answer", BOB))
        assert "owner" == json.loads(traced.lines("answer", BOB)[0])["code"]

        assert [] == json.loads(exporter.get("/trace", headers={"Accept": "application/json"})[1])
        assert {(): 0} == exporter.values("slurmscope_trace_processes") == agent.values("slurmscope_trace_processes")
        # The owner may, once with each credential.
        hers = traced.munge(ALICE, sample)
        assert (204, "") == traced.post(ALICE, sample, *hers, url)
        assert (401, "credential") == traced.post(ALICE, sample, *hers, url)
        assert (204, "") == traced.post("root", sample, *traced.munge("root", sample), url)


def test_older_wrapper_sends_without_a_credential_where_that_is_allowed(traced: TracedLab) -> None:
    """One object per post, no credential, the machine's own host name: what the wrapper script sends."""
    job = traced.lab.submit(ALICE, "-N1", script="sleep 300")
    traced.lab.wait_state(job, {"RUNNING"})
    sample: dict[str, object] = {
        "pid": 4242, "cpus": 99.9, "threads": 3, "mem": 1048576, "read_bytes": 10, "write_bytes": 20, "job_id": job,
        "username": ALICE, "hostname": socket.gethostname(),
    }  # fmt: skip
    headers = ("-A", "python-requests/2.31.0", "-H", "Accept: */*", "-H", "Accept-Encoding: gzip, deflate")
    with traced.exporter("--trace.plain-networks", "127.0.0.0/8") as exporter:
        url = f"http://{exporter.addresses[0]}/trace"
        assert (204, "") == traced.post(ALICE, sample, *headers, url)
        assert {(str(job), ALICE): 99.9} == exporter.values("slurm_proc_cpu_usage")
        assert {(str(job), ALICE): 1048576} == exporter.values("slurm_proc_mem_usage")
        assert {(str(job),): 1} == exporter.values("slurm_job_cpu_alloc")
        assert (403, "user") == traced.post(BOB, {**sample, "username": BOB}, url)
        assert (404, "job") == traced.post(ALICE, {**sample, "job_id": job + 1000}, url)


def test_known_jobs_are_accepted_while_the_controller_is_down(traced: TracedLab) -> None:
    job = traced.lab.submit(ALICE, "-N1", script="sleep 300")
    traced.lab.wait_state(job, {"RUNNING"})
    sample: dict[str, object] = {"job_id": job, "pid": 1}
    flags = ("--trace.plain-networks", "127.0.0.0/8", "--slurm.timeout", "2s")
    with traced.exporter(*flags) as exporter:
        url = f"http://{exporter.addresses[0]}/trace"
        # On a busy machine squeue may need longer than the short timeout.
        until(lambda: (204, "") == traced.post(ALICE, sample, url))
        traced.lab.kill_controller()
        try:
            until(lambda: (503, "slurm") == traced.post(ALICE, {**sample, "job_id": job + 1000}, url))
            assert (204, "") == traced.post(ALICE, sample, url)
        finally:
            traced.lab.start_controller()
