# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus and a real VictoriaMetrics accept what agents send, and have what a scrape would give."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest
import yaml

from lab.errors import LabError
from lab.network import ADDRESS, two_hosts
from lab.ports import free_port
from lab.prometheus import Server, run_prometheus, run_victoria_metrics
from lab.waiting import wait_until
from slurmscope.cli.options import load_config
from slurmscope.cli.roles import find_role
from slurmscope.exporter.collector import Role
from slurmscope.exporter.settings import wanted_samples
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.queries import REPORTS_METRICS
from slurmscope.metrics.family import Family
from slurmscope.node.job_use import CgroupUse, CpuUse, GroupKey, IoUse, JobKey, JobUse, MemoryUse, NodeJobs, ProcessUse
from slurmscope.node.jobs import COLLECTOR, JobUseOptions
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import Matcher, PrometheusSettings
from slurmscope.remote_write.client import RemoteWriteClient
from slurmscope.remote_write.encoding import RequestEncoder
from slurmscope.remote_write.feature import RemoteWriteSettings, parse_write_url
from slurmscope.remote_write.service import UP
from slurmscope.reports.make import measure
from tests.fakes.certificates import make_authority
from tests.fakes.reports import make_record
from tests.fakes.secured_server import basic_auth, secure
from tests.fixtures.cgroup.make import unpack
from tests.processes import run_slurmscope

ROOT = Path(__file__).parents[2]
RECEIVER = "--web.enable-remote-write-receiver"
INTERVAL_SECONDS = 0.2
# Of the server that scrapes, or different at each moment.
NOT_COMPARED = ("scrape_", "process_", "slurmscope_", "up", "jobs_progress_seconds")


@contextmanager
def running_agent(
    root: Path, url: str, *flags: str, before: tuple[str, ...] = (), log: int | IO[bytes] = subprocess.DEVNULL
) -> Iterator[None]:
    """Run an agent of captured jobs that sends its samples."""
    argv = [*before, sys.executable, "-m", "slurmscope", "node", "--output.remote-write", f"{url}/api/v1/write"]
    argv += [
        "--path.cgroup",
        f"{root}/sys/fs/cgroup",
        "--path.procfs",
        f"{root}/proc",
        "--interval",
        "200ms",
        "--node.interval",
        "1ms",
    ]
    argv += ["--output.remote-write-labels", "job=sent", *flags]
    with subprocess.Popen(argv, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()


def samples(server: Server, job: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Return the current samples of a job by their labels, without those that differ by nature."""
    return {
        tuple(sorted((label, value) for label, value in sample.labels.items() if label not in ("job", "instance"))): (
            sample.value
        )
        for sample in server.query(f'{{job="{job}"}}')
        if not sample.labels["__name__"].startswith(NOT_COMPARED)
    }


def keep_rules() -> object:
    """Return the rule by which the example for large clusters selects metrics."""
    config = yaml.safe_load((ROOT / "deploy" / "prometheus-large.yml").read_text(encoding="utf-8"))
    return next(job["metric_relabel_configs"] for job in config["scrape_configs"] if "metric_relabel_configs" in job)


def test_prometheus_has_the_same_samples_as_from_a_scrape(tmp_path: Path) -> None:
    root, port = unpack("v2-slurm-22.05", tmp_path / "node"), free_port()
    scrapes = {
        "global": {"scrape_interval": "200ms"},
        "scrape_configs": [
            {"job_name": "scraped", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
            {
                "job_name": "kept",
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                "metric_relabel_configs": keep_rules(),
            },
        ],
    }
    with run_prometheus(tmp_path / "prometheus", json.dumps(scrapes), RECEIVER) as server:
        with running_agent(root, server.url, "--web.listen-address", f"127.0.0.1:{port}"):
            wait_until(lambda: samples(server, "sent") and samples(server, "scraped"), "samples", timeout_seconds=60)
            wait_until(
                lambda: samples(server, "scraped") == samples(server, "sent"), "the same samples", timeout_seconds=60
            )
            names = {dict(labels)["__name__"] for labels in samples(server, "sent")}
            assert {"jobs_cpu_seconds_total", "jobs_memory_events_total", "jobs_info"} <= names
            # A scrape that a busy machine makes late ends all series until the next one. No job here has ended.
            wanted = names & REPORTS_METRICS - {"jobs_info"}
            wait_until(
                lambda: wanted == {dict(labels)["__name__"] for labels in samples(server, "kept")},
                "the metrics of reports",
                timeout_seconds=60,
            )
            wait_until(
                lambda: (
                    {"oom_kill"}
                    == {sample.labels["event"] for sample in server.query('jobs_memory_events_total{job="kept"}')}
                ),
                "the only event of reports",
                timeout_seconds=60,
            )
            assert [1.0] == [sample.value for sample in server.query('up{job="sent"}')]
        # The agent has ended: so have its series, at once and not after five minutes.
        wait_until(lambda: not server.query('{job="sent"}'), "the end of all series", timeout_seconds=60)


def points(server: Server, selector: str) -> list[tuple[float, float]]:
    """Return the stored samples of one series, with their times."""
    answer = json.loads(server.get("/api/v1/query", query=f"{selector}[10m]"))
    return [(point[0], float(point[1])) for series in answer["data"]["result"] for point in series["values"]]


def rounds(server: Server, instance: str = ".*") -> dict[float, float]:
    """Return the numbers of an agent's rounds by time; on a busy machine a round may have the number of the last.

    Nothing but a round reads the file systems; readings of the GPUs and others read the jobs once more.
    """
    labels = f'source="filesystems",job="sent",instance=~"{instance}"'
    found = points(server, f"slurmscope_readings_total{{{labels}}}")
    times = [moment for moment, _ in found]
    assert sorted(set(times)) == times
    return dict(found)


def is_complete(found: Mapping[float, float]) -> bool:
    """Return whether no round is missing: their numbers begin with 1, and none is left out."""
    numbers = list(found.values())
    return numbers == sorted(numbers) and set(numbers) == set(range(1, int(numbers[-1]) + 1))


def test_nothing_is_lost_while_prometheus_restarts(tmp_path: Path) -> None:
    root, port = unpack("v2-slurm-22.05", tmp_path / "node"), free_port()
    folder = tmp_path / "prometheus"
    with ExitStack() as stack:
        with run_prometheus(folder, "", RECEIVER, port=port) as server:
            stack.enter_context(running_agent(root, server.url))
            wait_until(lambda: len(rounds(server)) >= 2, "samples", timeout_seconds=60)
        down_at = time.time()
        time.sleep(10 * INTERVAL_SECONDS)
        back_at = time.time()
        with run_prometheus(folder, "", RECEIVER, port=port) as server:
            wait_until(lambda: max(rounds(server), default=0) > back_at, "new samples", timeout_seconds=60)
            found = rounds(server)

    # Ten intervals; a busy machine may miss some of them.
    assert len([moment for moment in found if down_at < moment < back_at]) >= 3
    assert is_complete(found)


def replace_file(path: Path, content: bytes) -> None:
    aside = path.with_suffix(".new")
    aside.write_bytes(content)
    aside.rename(path)


def test_samples_are_kept_until_certificates_are_right_and_dropped_for_a_wrong_password(tmp_path: Path) -> None:
    root = unpack("v2-slurm-22.05", tmp_path / "node")
    secured, log = secure(tmp_path), tmp_path / "agent.log"
    ca_file, cert_file, password_file = tmp_path / "ca.pem", tmp_path / "agent.pem", tmp_path / "auth"
    ca_file.write_bytes(make_authority(tmp_path, "stranger").cert.read_bytes())
    cert_file.write_bytes(ca_file.read_bytes() + (tmp_path / "stranger.key").read_bytes())
    password_file.write_text(basic_auth("secret"))
    flags = ["--output.remote-write-ca-file", str(ca_file), "--output.remote-write-cert-file", str(cert_file)]
    flags += ["--output.remote-write-headers", f"Authorization=@{password_file}"]
    web = (RECEIVER, f"--web.config.file={secured.config_file}")

    def wait_for(message: str) -> None:
        wait_until(lambda: message in log.read_text(), message, timeout_seconds=60)

    with run_prometheus(tmp_path / "prometheus", "", *web, opener=secured.opener) as server, log.open("wb") as stream:
        url = f"{server.url}/api/v1/write"
        with running_agent(root, server.url, *flags, "--log.level", "debug", log=stream):
            wait_for(f"the certificate of {url} is not trusted: ")
            replace_file(ca_file, secured.authority.cert.read_bytes())
            wait_for(f"TLS with {url} failed: ")
            assert {} == rounds(server)
            replace_file(cert_file, secured.client.cert.read_bytes() + secured.client.key.read_bytes())
            fixed_at = time.time()
            wait_until(lambda: max(rounds(server), default=0) > fixed_at, "samples", timeout_seconds=60)
            found = rounds(server)
            replace_file(password_file, basic_auth("wrong").encode())
            wait_for(f"{url} answered 401: Unauthorized")
            replace_file(password_file, basic_auth("secret").encode())
            refused = 'slurmscope_remote_write_dropped_samples_total{reason="refused"} > 0'
            wait_until(lambda: bool(server.query(refused)), "the count of refused samples", timeout_seconds=60)

    assert [moment for moment in found if moment < fixed_at]
    assert is_complete(found)
    assert "secret" not in log.read_text()


def lost_rounds(server: Server) -> tuple[float, int]:
    """Return how many rounds of the small buffer are not stored, and of how many the agent counted the samples as lost.

    The number of series differs by the kinds of failures that the agent has counted by then.
    """
    found = set(rounds(server, "small").values())
    (series,) = server.query('count({instance="small"})')
    (dropped,) = server.query('slurmscope_remote_write_dropped_samples_total{instance="small",reason="size"}')
    return max(found) - len(found), round(dropped.value / series.value)


def is_counted(server: Server) -> bool:
    """Return whether rounds are missing and counted; one with the number of the last is not missed, but counted."""
    missing, counted = lost_rounds(server)
    return 0 < missing <= counted < 2 * missing


def test_nothing_within_the_buffer_is_lost_while_the_network_is_cut(tmp_path: Path) -> None:
    root = unpack("v2-slurm-22.05", tmp_path / "node")
    with ExitStack() as stack:
        network = stack.enter_context(two_hosts())
        server = stack.enter_context(run_prometheus(tmp_path / "prometheus", "", RECEIVER, host=ADDRESS))
        for instance, size in (("large", "16MiB"), ("small", "64KiB")):
            flags = ("--output.remote-write-labels", f"instance={instance}", "--output.remote-write-buffer", size)
            stack.enter_context(running_agent(root, server.url, *flags, before=network.remote))
        wait_until(lambda: rounds(server, "large") and rounds(server, "small"), "samples", timeout_seconds=60)
        cut_at = time.time()
        network.cut()
        time.sleep(30 * INTERVAL_SECONDS)
        network.restore()
        restored_at = time.time()
        wait_until(lambda: max(rounds(server, "large")) > restored_at, "new samples", timeout_seconds=60)
        wait_until(lambda: max(rounds(server, "small")) > restored_at, "new samples", timeout_seconds=60)
        # The small buffer lost its oldest rounds, and counted each sample of them with the next round.
        with suppress(LabError):
            wait_until(lambda: is_counted(server), "the count", timeout_seconds=60)
        assert is_counted(server), lost_rounds(server)
        large = rounds(server, "large")
        failures = [sample.value for sample in server.query("slurmscope_remote_write_failures_total")]

    assert len([moment for moment in large if cut_at < moment < restored_at]) >= 5
    assert is_complete(large)
    # Pauses between retries grow.
    assert all(1 <= count <= 10 for count in failures)


def make_jobs(at_seconds: float) -> NodeJobs:
    """Make a job that keeps two cores busy, with something in every value that reports use."""
    cpu = CpuUse(
        total_seconds=2 * at_seconds, user_seconds=1.5 * at_seconds, system_seconds=0.5 * at_seconds, cores=(0, 1, 2)
    )
    memory = MemoryUse(
        current_bytes=3 << 30,
        anon_bytes=2 << 30,
        shmem_bytes=1 << 20,
        peak_bytes=3 << 30,
        limit_bytes=4 << 30,
        events={"max": 3, "oom_kill": 1},
    )
    io = IoUse(read_chars=int(10 * at_seconds), write_chars=int(20 * at_seconds), reads=int(at_seconds), writes=7)
    processes = ProcessUse(
        processes=2,
        threads_in={"running": 2, "sleeping": 9},
        threads_of={"python3": 11},
        resident_bytes=2 << 30,
        distinct_files=12,
        uses_scratch=True,
        io=io,
    )
    group = CgroupUse(cpu=cpu, memory=memory, pressure_seconds={("cpu", "some"): 1.0}, pids=11)
    groups = {GroupKey(): group, GroupKey("0"): group, GroupKey("0", "1"): group}
    job = JobUse(key=JobKey(4711), uid=1001, busy_cores=2.0, groups=groups, processes=processes)
    return NodeJobs(jobs=(job,), layout="v2", host_name="n1")


def page(profile: str, jobs: NodeJobs) -> list[Family]:
    config = load_config("node", {"metrics_profile": profile})
    exporter = find_role("node").make_exporter(lambda: config)
    is_wanted, narrow = exporter.wanted_metrics(config), wanted_samples(config, Role.NODE, exporter.reports)
    families = COLLECTOR.collect(config.of(JobUseOptions, "collector.job_use"), node_jobs=jobs)
    return [narrow(family) for family in families if is_wanted(family.metric)]


@contextmanager
def running_receiver(folder: Path, engine: str) -> Iterator[Server]:
    with run_prometheus(folder, "", RECEIVER) if engine == "prometheus" else run_victoria_metrics(folder) as server:
        yield server


def send(server: Server, encoder: RequestEncoder, families: list[Family], at_seconds: int) -> int:
    """Send one round; return how many samples it has."""
    client = RemoteWriteClient(RemoteWriteSettings(), parse_write_url(f"{server.url}/api/v1/write"))
    requests = list(encoder.encode(families, 1000 * at_seconds))
    for request in requests:
        client.send(request.body)
    return sum(request.samples for request in requests)


ENGINES = pytest.mark.parametrize("engine", ["prometheus", "victoria-metrics"])


@ENGINES
def test_series_of_an_ended_job_end_at_once(tmp_path: Path, engine: str) -> None:
    def names(server: Server, at_seconds: float) -> set[str]:
        answer = json.loads(server.get("/api/v1/query", query='{job="slurm-nodes"}', time=str(at_seconds)))
        return {series["metric"]["__name__"] for series in answer["data"]["result"]}

    end = int(time.time()) - 30
    running, idle = page("reports", make_jobs(100)), page("reports", NodeJobs(jobs=(), layout="v2", host_name="n1"))
    up = Family(UP, {(): 1.0})
    with running_receiver(tmp_path, engine) as server:
        encoder = RequestEncoder({"job": "slurm-nodes", "instance": "n1"})
        for at_seconds in range(end - 60, end, 15):
            send(server, encoder, [up, *running], at_seconds)
        send(server, encoder, [up, *idle], end)
        if engine != "prometheus":
            server.get("/internal/force_flush")
        before, after = names(server, end - 1), names(server, end + 1)

    assert {"up", "jobs_cpu_seconds_total", "jobs_busy_cores"} <= before
    assert {"up", *(family.metric.name for family in idle if family.samples)} == after


@ENGINES
def test_report_from_the_profile_of_reports_equals_one_from_the_full_profile(tmp_path: Path, engine: str) -> None:
    end = int(time.time()) - 30
    start = end - 600
    counts = {}
    with running_receiver(tmp_path, engine) as server:
        for profile in ("reports", "full"):
            encoder = RequestEncoder({"job": "slurm-nodes", "instance": "n1", "profile": profile})
            for at_seconds in range(start, end + 1, 15):
                families = page(profile, make_jobs(at_seconds - start))
                counts[profile] = send(server, encoder, families, at_seconds)
        if engine != "prometheus":
            server.get("/internal/force_flush")
        record = make_record(start_seconds=start, end_seconds=end, nodes=("n1",))
        found = {}
        for profile in ("reports", "full"):
            settings = PrometheusSettings(url=parse_address(server.url), matchers=(Matcher("profile", profile),))
            series = PrometheusSeries(Prometheus(settings), settings)
            found[profile] = measure(series, [record], now_seconds=end, until=time.monotonic() + 60)

    assert counts["reports"] < counts["full"] / 2
    assert found["full"] == found["reports"]
    assert ((), None) == (found["full"].problems, found["full"].failure)
    measured = found["reports"].of(record.job_id)
    assert {("n1",): 1200.0} == measured.totals["cpu"]
    assert {("n1",): 1.0} == measured.totals["oom_kills"]
    assert measured.totals.keys() >= {"memory_peak", "reads", "mean_open_files", "program_threads", "uses_scratch"}
    assert measured.curves.keys() >= {"cpu", "memory_anon", "read", "running_threads", "open_files"}


def examine(server: Server) -> str:
    """Return what the doctor says of a server that samples would be sent to."""
    done = run_slurmscope("doctor", "node", "--output.remote-write", f"{server.url}/api/v1/write")
    (line,) = (line for line in done.stdout.splitlines() if "  remote write: " in line)
    return line


@ENGINES
def test_doctor_finds_a_server_that_accepts_samples(tmp_path: Path, engine: str) -> None:
    with running_receiver(tmp_path, engine) as server:
        assert examine(server).startswith("ok ")


def test_doctor_finds_a_server_that_does_not_accept_samples(tmp_path: Path) -> None:
    with run_prometheus(tmp_path, "") as server:
        line = examine(server)

    assert line.startswith("failed ")
    assert "answered 404: remote write receiver needs to be enabled" in line
