# SPDX-License-Identifier: Apache-2.0
"""Sites come from an older exporter: its live page beside ours on a real cluster, and its queries by host name."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import ALICE, BOB, SlurmLab
from lab.prometheus import run_prometheus
from tests.fakes.old_slurm_exporter import render_old_page, serving_page
from tests.fakes.scripted_server import scripted_server
from tests.processes import Exporter, run_slurmscope, running, serving, until

PAGES = sorted((Path(__file__).parents[2] / "docs" / "migrate").glob("*.md"))
PAGE = next(page for page in PAGES if page.stem == "README").read_text(encoding="utf-8")
RULE = "groups: [{{name: example, rules: [{{record: example, expr: '{query}'}}]}}]"
FLAGS = ("--slurm.poll-limit=1s",)


@pytest.fixture
def busy(clean_lab: SlurmLab) -> SlurmLab:
    """Let jobs run and wait, in several partitions and accounts."""
    long = "sleep 600"
    started = [
        clean_lab.submit(ALICE, "--mem=200M", script=long),
        clean_lab.submit(BOB, "--partition=long", "--mem=100M", script=long),
    ]
    for job in started:
        clean_lab.wait_state(job, {"RUNNING"})
    clean_lab.submit(ALICE, "--hold", "--array=1-4")
    clean_lab.submit(BOB, "--hold", "--partition=debug,long")
    return clean_lab


@pytest.fixture
def exporter(busy: SlurmLab) -> Iterator[Exporter]:
    with serving("cluster", *FLAGS, "--slurm.bin-path", str(busy.bin_path), environment=busy.environment) as exporter:
        wait_for_all_collectors(exporter)
        yield exporter


def wait_for_all_collectors(exporter: Exporter) -> None:
    """On a busy machine a collector may need more than one scrape."""
    until(lambda: set(exporter.values("slurmscope_collector_success").values()) == {1.0})


def check(page: str, exporter: Exporter) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and the differences by metric."""
    with scripted_server(serving_page(page)) as old:
        done = run_slurmscope("migrate", "check", old, "--against", f"http://{exporter.addresses[0]}", "--format=json")
    assert "" == done.stderr
    return done.returncode, {found["metric"]: found for found in json.loads(done.stdout)["differences"]}


def test_documented_corrections_are_all_that_differs(busy: SlurmLab, exporter: Exporter) -> None:
    code, found = check(render_old_page(busy.run), exporter)

    memory = {"slurm_mem_real", "slurm_partition_real_mem", "slurm_user_mem_alloc", "slurm_account_job_state_mem_alloc"}
    assert {"slurm_partition_job_state_total"} | memory == set(found)
    # A node has 4000 MiB.
    assert 1.048576 == pytest.approx(found["slurm_mem_real"]["factor"])
    assert {False} == {each["is_loss"] for each in found.values()}
    assert 0 == code


def test_jobs_that_no_reason_explains_are_a_loss(busy: SlurmLab, exporter: Exporter) -> None:
    # Without the job for two partitions on the old page, one more in each of them has no reason.
    page = re.sub(r'(?m)^.*partition="debug,long".*\n', "", render_old_page(busy.run))
    code, found = check(page, exporter)

    assert (1, {"slurm_partition_job_state_total"}) == (code, {name for name in found if found[name]["is_loss"]})


def test_flag_that_keeps_a_metric_is_named(busy: SlurmLab, exporter: Exporter) -> None:
    job = busy.run("squeue", "-h", "-t", "R", "-o", "%A").split()[0]
    _, found = check(f'# TYPE slurm_job_cpu_alloc gauge\nslurm_job_cpu_alloc{{jobid="{job}"}} 1\n', exporter)

    assert "Start slurmscope cluster with --collector.job_info." == found["slurm_job_cpu_alloc"]["remedy"]


def test_documented_commands_compare_both_exporters(busy: SlurmLab) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    start, compare = (shlex.split(line.rstrip("&"))[1:] for line in block.splitlines())
    environment = {**busy.environment, "SLURMSCOPE_SLURM_BIN_PATH": str(busy.bin_path)}

    with (
        scripted_server(serving_page(render_old_page(busy.run))) as old,
        running(*_on_free_port(start), environment=environment, wait_for="msg=listening") as exporter,
    ):
        wait_for_all_collectors(exporter)
        places = {"http://localhost:9092": old, "http://localhost:9341": f"http://{exporter.addresses[0]}"}
        done = run_slurmscope(*(_moved(argument, places) for argument in compare))

    assert ["migrate", "check"] == compare[:2]
    assert (0, "") == (done.returncode, done.stderr)
    assert "corrected  slurm_mem_real is 1.049 times the old value" in done.stdout
    assert "Nothing would be lost." == done.stdout.splitlines()[-1]


def _on_free_port(arguments: list[str]) -> list[str]:
    return [argument.replace("=:9341", "=127.0.0.1:0") for argument in arguments]


def _moved(argument: str, places: dict[str, str]) -> str:
    for documented, real in places.items():
        argument = argument.replace(documented, real)
    return argument


@pytest.mark.parametrize("is_relabelled", [True, False])
def test_older_queries_by_host_name_find_something_with_the_documented_relabelling(
    tmp_path: Path, is_relabelled: bool
) -> None:
    config, _ = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    if not is_relabelled:
        config = config.partition("    relabel_configs:")[0]
    with serving("node") as agent:
        port = agent.addresses[0].rpartition(":")[2]
        config = f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n{config}"
        # The domain of the documented target is one that every machine resolves.
        config = config.replace("n1.example.org:9798", f"localhost:{port}")
        with run_prometheus(tmp_path, config) as prometheus:
            until(lambda: prometheus.query("jobs_on_node"))
            found = prometheus.query('jobs_on_node{instance="localhost"}')

    assert is_relabelled == bool(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_a_page_are_valid(tmp_path: Path, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    examples = [_complete(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    examples += [
        RULE.format(query=" ".join(query.split())) for query in re.findall(r"```promql\n(.*?)```", text, re.DOTALL)
    ]

    assert examples
    for example in examples:
        file = tmp_path / "example.yml"
        file.write_text(example, encoding="utf-8")
        what = "rules" if example.startswith("groups:") else "config"
        argv = ["promtool", "check", what, str(file)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert 0 == done.returncode, done.stdout + done.stderr


def _complete(example: str) -> str:
    """Put relabelling into a scrape job."""
    if not example.startswith("metric_relabel_configs:"):
        return example
    return "scrape_configs:\n  - job_name: slurm\n" + "".join(f"    {line}\n" for line in example.splitlines())
