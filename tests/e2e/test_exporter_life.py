# SPDX-License-Identifier: Apache-2.0
"""An exporter starts, reloads and ends as its operator expects, and a bad start is one sentence."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from slurmscope.cli.roles import all_collectors, feature_metrics
from slurmscope.exporter.collector import Role
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import write_fake_commands
from tests.processes import run_slurmscope, running, serving, until, values

# Names kept for dashboards of older exporters may break the naming rules, nothing else may.
KEPT_NAMES = {
    metric.name
    for metric in (*feature_metrics(Role.CLUSTER), *(m for c in all_collectors(Role.CLUSTER) for m in c.metrics))
    if metric.is_compat
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    write_fake_commands(simulate(Shape(), now=int(time.time())), folder)
    return folder


ONE_JOB = (
    r"printf 'physics\037alice\037debug\037normal\037RUNNING\037None\037(null)"
    r"\0361\0372\037cpu=2,mem=1G,node=1\0361794732498\0371794732500\n'"
)


def shim(folder: Path, script: str) -> Path:
    """Write a squeue that does what a test needs."""
    folder.mkdir(exist_ok=True)
    command = folder / "squeue"
    command.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    command.chmod(0o755)
    return folder


def test_page_is_accepted_by_promtool(simulated: Path) -> None:
    page = run_slurmscope("cluster", "--once", "--slurm.bin-path", str(simulated)).stdout

    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=60, check=False
    )

    assert checked.returncode in (0, 3), checked.stderr
    assert [] == [line for line in checked.stderr.splitlines() if line.split()[0] not in KEPT_NAMES]


def test_scrape_answers_before_its_deadline_with_the_last_good_numbers(tmp_path: Path) -> None:
    marker = tmp_path / "slow"
    folder = shim(tmp_path / "bin", f"[ -e {marker} ] && sleep 30; {ONE_JOB}")
    flags = (
        "--slurm.bin-path",
        str(folder),
        "--slurm.poll-limit=0.1",
        "--slurm.timeout=60",
        "--slurm.private-data=ignore",
    )
    with serving("cluster", *flags) as exporter:
        assert {("RUNNING",): 1} == exporter.values("slurm_jobs")
        marker.touch()
        time.sleep(0.2)
        # It leaves half a second, which a busy machine may take once, not three times.
        for _ in range(3):
            started = time.monotonic()
            _, page = exporter.get(headers={"X-Prometheus-Scrape-Timeout-Seconds": "3"})
            took = time.monotonic() - started
            if took < 3:
                break

    assert took < 3
    assert {("RUNNING",): 1} == values(page, "slurm_jobs")
    assert 0 == values(page, "slurmscope_collector_success")["jobs",]
    assert values(page, "slurmscope_reading_age_seconds")["jobs",] > 0.1


def test_many_scrapes_are_one_command(tmp_path: Path) -> None:
    folder = shim(tmp_path / "bin", f"echo x >> {tmp_path}/runs; {ONE_JOB}")
    with serving("cluster", "--slurm.bin-path", str(folder), "--slurm.poll-limit=1h") as exporter:
        for _ in range(20):
            exporter.get()

    assert "x\n" == (tmp_path / "runs").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_exporter_cleanly(simulated: Path, number: signal.Signals) -> None:
    with serving("cluster", "--slurm.bin-path", str(simulated)) as exporter:
        exporter.get()
        started = time.monotonic()
        assert 0 == exporter.end(number)
        assert time.monotonic() - started < 10


def test_sigterm_in_the_middle_of_a_slow_scrape_ends_in_time(tmp_path: Path) -> None:
    folder = shim(tmp_path / "bin", "sleep 60")
    with serving("cluster", "--slurm.bin-path", str(folder), "--slurm.timeout=60") as exporter:
        host, port = exporter.addresses[0].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.3)
            started = time.monotonic()
            exporter.process.send_signal(signal.SIGTERM)
            exporter.process.send_signal(signal.SIGTERM)
            assert 0 == exporter.process.wait(60)
            assert time.monotonic() - started < 10


def test_sighup_uses_a_good_file_and_keeps_the_old_settings_when_it_is_broken(simulated: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(f"[slurm]\nbin-path = '{simulated}'\n", encoding="utf-8")
    with serving("cluster", "--config.file", str(file)) as exporter:
        assert exporter.values("slurm_user_state_total")
        file.write_text("[slurm]\nbin-pth = 'x'\n", encoding="utf-8")
        exporter.process.send_signal(signal.SIGHUP)
        until(lambda: exporter.values("slurmscope_config_last_reload_successful") == {(): 0})
        assert exporter.values("slurm_user_state_total")
        assert any("unknown key 'slurm.bin-pth'" in line for line in exporter.log)
        file.write_text(f"[slurm]\nbin-path = '{simulated}'\n[collector.jobs]\nenabled = false\n", encoding="utf-8")
        exporter.process.send_signal(signal.SIGHUP)
        until(lambda: exporter.values("slurmscope_config_last_reload_successful") == {(): 1})
        assert {} == exporter.values("slurm_user_state_total")


def test_once_ends_with_1_when_a_collector_failed(tmp_path: Path) -> None:
    done = run_slurmscope("cluster", "--once", "--slurm.bin-path", str(shim(tmp_path / "bin", "exit 1")))

    assert 1 == done.returncode
    assert 0 == values(done.stdout, "slurmscope_collector_success")["jobs",]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--no-such-flag"], "--no-such-flag"),
        (["--slurm.poll-limit=soon"], "--slurm.poll-limit"),
        (["--web.listen-address=nowhere"], "nowhere"),
        (["--web.listen-address=127.0.0.1:99999"], "127.0.0.1:99999"),
        (["--config.file=/does/not/exist.toml"], "/does/not/exist.toml"),
        (["--web.config.file=/does/not/exist.yml"], "/does/not/exist.yml"),
        (["--metrics.exclude=("], "--metrics.exclude"),
        (["--output.push=ftp://x"], "--output.push"),
        (["--web.telemetry-path=metrics"], "--web.telemetry-path"),
        (["--log.level=loud"], "--log.level"),
        (["--output.textfile=/tmp/slurm.txt"], "--output.textfile"),
    ],
)
def test_bad_start_is_one_sentence_and_exit_code_2(arguments: list[str], named: str) -> None:
    done = run_slurmscope("cluster", *arguments)

    assert 2 == done.returncode
    assert 1 == len(done.stderr.splitlines()), done.stderr
    assert named in done.stderr
    assert "" == done.stdout


def test_taken_address_is_one_sentence_and_exit_code_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_slurmscope("cluster", "--web.listen-address", address)

    assert 2 == done.returncode
    assert f"slurmscope: cannot listen on {address}: Address already in use" == done.stderr.strip()


def test_environment_of_older_exporters_is_understood() -> None:
    environment = {"POLL_LIMIT": "20", "LOGLEVEL": "warning", "CLI_TIMEOUT": "3.5"}

    shown = run_slurmscope("config", "show", "cluster", environment=environment).stdout

    assert 'slurm.poll-limit = "20s"  # POLL_LIMIT' in shown
    assert 'log.level = "warn"  # LOGLEVEL' in shown
    assert 'slurm.timeout = "3.5s"  # CLI_TIMEOUT' in shown


def test_secrets_are_not_shown() -> None:
    shown = run_slurmscope("config", "show", "cluster", "--output.push=http://user:hunter2@gateway:9091").stdout

    assert "output.push = <hidden>  # flag" in shown
    assert "hunter2" not in shown


def test_textfile_is_kept_up_to_date_and_nothing_listens(simulated: Path, tmp_path: Path) -> None:
    path = tmp_path / "slurm.prom"
    flags = ("--slurm.bin-path", str(simulated), "--output.textfile", str(path), "--interval=0.2")
    with running("cluster", *flags) as exporter:
        until(path.exists)
        first = path.stat().st_mtime_ns
        until(lambda: path.stat().st_mtime_ns > first)
        assert [] == exporter.addresses
        assert 0 == exporter.end()
    assert values(path.read_text(encoding="utf-8"), "slurm_user_state_total")
    assert [path] == list(tmp_path.iterdir())


def test_file_of_targets_is_written_by_an_exporter_without_an_http_server(tmp_path: Path) -> None:
    write_fake_commands(simulate(Shape(jobs=3, nodes=2), now=int(time.time())), tmp_path / "bin")
    file = tmp_path / "nodes.json"
    flags = ("--slurm.bin-path", str(tmp_path / "bin"), "--output.textfile", str(tmp_path / "slurm.prom"))
    with running("cluster", *flags, "--sd.file", str(file)) as exporter:
        until(file.exists)
        assert 0 == exporter.end()
    assert 2 == sum(len(group["targets"]) for group in json.loads(file.read_bytes()))
    assert not any("msg=listening" in line for line in exporter.log)
