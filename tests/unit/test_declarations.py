# SPDX-License-Identifier: Apache-2.0
"""What is declared holds together: metrics do not clash, flags and documentation follow from collectors."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import slurmscope
from slurmscope.cli.roles import SECTION_NAMES, all_collectors, feature_metrics, find_sections
from slurmscope.core.config import find_replacement
from slurmscope.exporter.collector import Collector, Role
from slurmscope.exporter.self_metrics import SELF_METRICS
from slurmscope.metrics.family import Family, Histogram, Metric, MetricKind
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format, write
from slurmscope.portal.metrics import PORTAL_METRICS
from slurmscope.recorder.settings import RECORDED_METRICS
from slurmscope.up.up import RECORDING_METRICS
from tests.requirements import require_program

ROOT = Path(__file__).resolve().parents[2]
COLLECTORS = [collector for role in Role for collector in all_collectors(role)]
# Once each: both exporters declare the metrics of traced processes, and two collectors the allocation of jobs.
METRICS = list(dict.fromkeys([
    *(metric for collector in COLLECTORS for metric in collector.metrics),
    *SELF_METRICS, *feature_metrics(Role.CLUSTER), *PORTAL_METRICS, *RECORDING_METRICS,
]))  # fmt: skip

NEW_COLLECTOR = """
from slurmscope.exporter.collector import Collector, Reading, Role
from slurmscope.metrics.family import Family, gauge

ANSWER = gauge("slurm_answer", "The answer to everything.")


def collect(options, *, triggers, jobs):
    yield Family(ANSWER, {(): triggers})


TRIGGERS = Reading(name="triggers", read=lambda slurm: len(slurm.run("strigger", ("--get",)).splitlines()))
COLLECTOR = Collector(
    name="answer", role=Role.CLUSTER, help="The answer.", needs=(TRIGGERS, "jobs"), metrics=(ANSWER,), collect=collect
)
"""


@pytest.mark.parametrize("collector", COLLECTORS, ids=lambda collector: collector.name)
def test_collector_takes_the_readings_it_needs(collector: Collector) -> None:
    _, *readings = inspect.signature(collector.collect).parameters
    assert collector.reading_names == tuple(readings)


def test_what_reports_and_charts_need_is_exported_without_the_older_names() -> None:
    assert RECORDED_METRICS <= {metric.name for metric in METRICS if not metric.is_compat}


def sample(metric: Metric) -> Family:
    value = Histogram((1,) * (len(metric.buckets) + 1), 1.0) if metric.kind is MetricKind.HISTOGRAM else 1.0
    return Family(metric, {("x",) * len(metric.labels): value})


def test_no_two_metrics_share_a_name_or_clash_in_a_format() -> None:
    guard = Guard()

    served = [family.metric.name for family in guard.admit(sample(metric) for metric in METRICS)]

    assert {} == dict(guard.dropped)
    assert [metric.name for metric in METRICS] == served


def test_names_that_are_ours_follow_the_conventions(tmp_path: Path) -> None:
    promtool = require_program("promtool")
    ours = [sample(metric) for metric in METRICS if not metric.is_compat]

    page = b"".join(write(ours, Format.TEXT))
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)

    assert "" == checked.stderr.decode()
    assert 0 == checked.returncode


# Of jobs and nodes as the controller knows them; docs/metrics.md has the joins.
OF_CONTROLLER = {
    "jobid": ("slurm_job_info", "cluster_filesystem_top_job_"),
    "node": ("slurm_node_",),
    "host": ("slurm_controller_up",),
}
OTHER_WORDS = {
    "job", "instance", "job_id", "jobs", "hostname", "nodename", "node_name", "nodelist", "username", "user_name",
    "uname", "slurm_account", "slurm_user", "acct", "queue", "process", "proc", "step_id", "task_id",
}  # fmt: skip


def test_jobs_and_nodes_have_the_same_labels_in_all_names_that_are_ours() -> None:
    labels = {metric.name: set(metric.labels) for metric in METRICS if not metric.is_compat}
    of_jobs = {
        name: own for name, own in labels.items() if name.startswith(("jobs_", "slurm_profile_", "slurm_trace_"))
    }

    assert {} == {name: own & OTHER_WORDS for name, own in labels.items() if own & OTHER_WORDS}
    for label, prefixes in OF_CONTROLLER.items():
        assert [] == [name for name, own in labels.items() if label in own and not name.startswith(prefixes)]
    # Those about the agent itself have no job.
    assert {"jobs_on_node", "jobs_stale_cgroups", "jobs_layout_info"} == {
        name for name, own in of_jobs.items() if not {"slurm_job", "slurm_node"} <= own
    }
    assert [] == [name for name, own in labels.items() if own & {"slurm_job", "step", "task"} and name not in of_jobs]
    assert [] == [name for name, own in labels.items() if "slurm_node" in own and own & {"node", "host", "jobid"}]


def test_settings_are_few_and_none_is_said_to_be_removed() -> None:
    keys = {declared.key for name in SECTION_NAMES for each in find_sections(name) for declared in each.settings()}

    assert [] == [key for key in sorted(keys) if find_replacement(key)]
    assert len(keys) <= 220


def test_every_collector_is_documented() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")

    for collector in COLLECTORS:
        assert f"### {collector.name}\n" in page
        for metric in collector.metrics:
            assert f"| `{metric.name}` |" in page


def test_new_collector_is_one_file(tmp_path: Path) -> None:
    package = tmp_path / "slurmscope"
    shutil.copytree(Path(slurmscope.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "cluster" / "answer.py").write_text(NEW_COLLECTOR, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name, script in {"squeue": "", "strigger": "seq 42"}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)

    def python(*arguments: str) -> str:
        # The copy is no part of the code whose coverage is measured.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
        environment = {**inherited, "PYTHONPATH": f"{tmp_path}:{ROOT}", "COLUMNS": "100"}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        return done.stdout

    assert "--[no-]collector.answer" in python("-m", "slurmscope", "cluster", "--help-all")
    assert "collector.answer.enabled = true" in python("-m", "slurmscope", "config", "show", "cluster")
    page = python("-m", "slurmscope", "cluster", "--once", "--slurm.bin-path", str(tmp_path / "bin"))
    assert "\nslurm_answer 42\n" in page
    assert 'slurmscope_collector_success{collector="answer"} 1' in page
    table = python("-c", "from scripts.docs import cluster_metrics; print(''.join(cluster_metrics()))")
    assert "| `slurm_answer` | gauge | – | The answer to everything. |" in table
