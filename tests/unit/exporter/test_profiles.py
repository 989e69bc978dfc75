# SPDX-License-Identifier: Apache-2.0
"""The profile reports has what is queried, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.grafana.generate import files
from slurmscope.cli import slurmscope
from slurmscope.cli.options import load_config
from slurmscope.cli.roles import all_collectors, feature_metrics, find_role
from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError
from slurmscope.exporter.collector import Role
from slurmscope.exporter.self_metrics import SELF_METRICS
from slurmscope.exporter.settings import wanted_samples
from slurmscope.jobs.queries import REPORT_QUERIES, REPORTS_METRICS, RULE_METRICS, common_conditions
from slurmscope.jobs.series import Aggregation, SeriesQuery
from slurmscope.metrics.family import Family, Metric, counter, gauge
from slurmscope.node.jobs import COLLECTOR, STEPS, JobUseOptions
from slurmscope.node.process_groups import COLLECTOR as PROCESS_GROUPS
from slurmscope.prometheus.query_counters import QueryCounters
from slurmscope.prometheus.responses import FoundSeries, Reply
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.make import measure
from tests.fakes.reports import START, make_record

RULES = Path(__file__).parents[3] / "deploy" / "rules"
NAME = re.compile(r"(?<![:a-z0-9_])[a-z][a-z0-9_]+(?=\{)")
"""Of a metric; what recording rules make has colons, and comes from no agent."""
OF_COLLECTORS = {metric.name for collector in all_collectors(Role.NODE) for metric in collector.metrics}
OF_AGENT = OF_COLLECTORS | {metric.name for metric in (*SELF_METRICS, *feature_metrics(Role.NODE))}
NODE = find_role("node").make_exporter(lambda: load_config("node", {}))


class RecordingServer:
    """Answer every query with a traced and profiled job, and keep the expressions."""

    def __init__(self) -> None:
        self.counters = QueryCounters()
        self.expressions: list[str] = []

    def query_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply:
        """Return one series with all labels that any query uses."""
        self.expressions.append(query)
        labels = {"slurm_job": "7", "jobid": "7", "slurm_node": "n1", "step": "0", "task": "0", "pid": "9"}
        return Reply(series=(FoundSeries(labels, (at_seconds,), (1.0,)),))

    def query_range(
        self, query: str, times: tuple[float, float], step_seconds: float, *, kind: str, until: float
    ) -> Reply:
        """Return nothing."""
        self.expressions.append(query)
        return Reply(series=())


def config(*flags: tuple[str, object]) -> Config:
    return load_config("node", dict(flags))


def reports(*flags: tuple[str, object]) -> Callable[[Metric], bool]:
    return NODE.wanted_metrics(config(("metrics_profile", "reports"), *flags))


def test_every_metric_that_a_report_queries_from_prometheus_is_in_the_profile() -> None:
    server = RecordingServer()
    series = PrometheusSeries(server, PrometheusSettings())

    measure(series, [make_record(7)], now_seconds=START + 10_000.0, until=float("inf"))
    queried = {name for expression in server.expressions for name in NAME.findall(expression)}

    assert {"slurm_trace_threads", "slurm_profile_power_watts"} <= queried, "the second round was sent too"
    assert queried - {name for name in queried if name.startswith("lustre_")} == REPORTS_METRICS - RULE_METRICS


def test_metrics_beside_those_of_reports_are_the_ones_that_rules_query() -> None:
    texts = [text.read_text(encoding="utf-8") for text in RULES.glob("*.yml")]
    groups: list[dict[str, Any]] = [group for text in texts for group in yaml.safe_load(text)["groups"]]
    words = {word for group in groups for rule in group["rules"] for word in re.findall(r"\w+", rule["expr"])}

    assert RULE_METRICS == (words & OF_AGENT) - {query.metric for query in REPORT_QUERIES}


@pytest.mark.parametrize("name", ["cluster", "queue", "partition"])
def test_dashboard_of_the_cluster_queries_no_metric_of_agents_that_the_profile_leaves_out(name: str) -> None:
    (text,) = (text for file, text in files().items() if file.stem == name)

    assert set() == (set(re.findall(r"\w+", text)) & OF_COLLECTORS) - REPORTS_METRICS


def test_profile_has_only_metrics_that_the_agent_exports_and_no_older_names() -> None:
    assert OF_AGENT >= REPORTS_METRICS
    older = {metric.name for collector in all_collectors(Role.NODE) for metric in collector.metrics if metric.is_compat}
    assert set() == older & REPORTS_METRICS


def test_standard_profile_is_the_default_and_exports_everything() -> None:
    assert all(map(NODE.wanted_metrics(config()), COLLECTOR.metrics))
    assert NODE.wanted_metrics(config(("metrics_profile", "standard")))(COLLECTOR.metrics[-1])


def test_profile_of_reports_leaves_out_what_is_not_queried() -> None:
    is_wanted = reports()
    names = {metric.name for metric in COLLECTOR.metrics if is_wanted(metric)}

    assert {"jobs_cpu_seconds_total", "jobs_memory_peak_bytes"} <= names
    assert not {"jobs_cpu_time_total", "jobs_pressure_seconds_total", "jobs_pids"} & names


def test_collector_that_is_enabled_explicitly_keeps_its_metrics() -> None:
    assert all(map(reports(("collector_process_groups", True)), PROCESS_GROUPS.metrics))


def test_excluded_metrics_are_left_out_in_every_profile() -> None:
    gone = counter("jobs_cpu_seconds_total", "CPU time.")
    assert not reports(("metrics_exclude", "^jobs_cpu_"))(gone)
    assert reports()(gone)


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        ((), False),
        ((("metrics_profile", "full"),), True),
        ((("metrics_profile", "full"), ("collector_job_use_steps", False)), False),
        ((("metrics_profile", "reports"),), False),
    ],
)
def test_full_profile_has_steps_unless_they_are_disabled(flags: tuple[tuple[str, object], ...], steps: bool) -> None:
    assert steps == config(*flags).of(JobUseOptions, "collector.job_use").steps


def test_steps_are_not_part_of_the_profile_of_reports() -> None:
    assert not any(reports(("collector_job_use_steps", True))(metric) for metric, _ in STEPS)


def test_only_the_event_that_reports_query_is_exported() -> None:
    events = next(metric for metric in COLLECTOR.metrics if metric.name == "jobs_memory_events_total")
    family = Family(events, {("7", "n1", "max"): 1.0, ("7", "n1", "oom_kill"): 2.0})
    lazy = Family(events, iter([(("7", "n1", "oom_kill"), 2.0)]))
    other = Family(gauge("jobs_cores", "Cores.", "slurm_job"), {("7",): 1.0})
    narrow = wanted_samples(config(("metrics_profile", "reports")), Role.NODE, NODE.reports)

    assert {("7", "n1", "oom_kill"): 2.0} == narrow(family).samples == narrow(lazy).samples
    assert other is narrow(other)
    assert family is wanted_samples(config(), Role.NODE, NODE.reports)(family)
    assert family is wanted_samples(load_config("cluster", {}), Role.CLUSTER, NODE.reports)(family)


def test_metric_that_one_query_reads_whole_is_not_restricted() -> None:
    one = SeriesQuery(metric="jobs_threads", how=Aggregation.MAX, where=(("state", "running"),))
    two = SeriesQuery(metric="jobs_threads", how=Aggregation.MAX, where=(("state", "sleeping"),))
    three = SeriesQuery(metric="jobs_threads", how=Aggregation.MAX, where=(("core", "1"),))
    whole = SeriesQuery(metric="jobs_threads", how=Aggregation.MAX)

    assert {"jobs_threads": ("state", frozenset({"running", "sleeping"}))} == common_conditions([one, two])
    assert {} == common_conditions([one, whole])
    assert {} == common_conditions([one, three])


def test_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"^--metrics\.profile: 'small' is not one of reports, standard, full$"):
        config(("metrics_profile", "small"))


def test_only_the_node_agent_has_profiles() -> None:
    assert "metrics.profile" in CliRunner().invoke(slurmscope, ["node", "--help-all"]).output
    assert "metrics.profile" not in CliRunner().invoke(slurmscope, ["cluster", "--help-all"]).output
