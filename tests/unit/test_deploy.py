# SPDX-License-Identifier: Apache-2.0
"""What we give people to deploy is valid, tight and up to date."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from slurmscope.cli import slurmscope
from slurmscope.cli.roles import all_collectors
from slurmscope.exporter.collector import Role
from slurmscope.exporter.self_metrics import SELF_METRICS
from slurmscope.jobs.queries import FOREIGN_METRICS, REPORTS_CONDITIONS, REPORTS_METRICS
from slurmscope.trace.tokens import rotate_keys
from tests.fakes.certificates import make_authority
from tests.queried_metrics import declared_labels, declared_names, queried_names, selected_labels
from tests.requirements import require_program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "slurmscope-cluster.service"
RULES = tuple(sorted((DEPLOY / "rules").glob("*.yml")))
SCRAPES = DEPLOY / "prometheus.yml"
LARGE = DEPLOY / "prometheus-large.yml"
RULE_TESTS = tuple(sorted((DEPLOY / "rules" / "tests").glob("*.yml")))
SHARDS = 4
MOST_EXPOSURE = 25
"""In tenths, as systemd counts from 0 (none) to 10."""


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a checker of Prometheus or systemd."""
    argv = [require_program(program), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def assert_good(done: subprocess.CompletedProcess[str]) -> None:
    assert 0 == done.returncode, done.stdout + done.stderr


def check_settings(file: Path) -> str:
    return CliRunner().invoke(slurmscope, ["config", "check", "cluster", "--config.file", str(file)]).output


def test_unit_leaves_little_to_attack() -> None:
    assert_good(run("systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", UNIT))


def test_unit_has_no_unknown_keys(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    # systemd looks whether the program is there.
    text, changes = re.subn(r"(?m)^(ExecStart=)\S+", rf"\1{sys.executable}", UNIT.read_text(encoding="utf-8"))
    copy.write_text(text, encoding="utf-8")

    checked = run("systemd-analyze", "verify", "--man=no", copy)

    assert 1 == changes
    assert [] == [line for line in checked.stderr.splitlines() if UNIT.name in line]


def test_unit_starts_a_command_that_is_understood() -> None:
    (line,) = re.findall(r"(?m)^ExecStart=(.*)$", UNIT.read_text(encoding="utf-8"))
    program, role, flag, file = line.split()

    done = CliRunner().invoke(slurmscope, ["config", "check", role, flag, str(DEPLOY / Path(file).name)])

    assert ("slurmscope", 0) == (Path(program).name, done.exit_code)


def test_example_settings_are_valid() -> None:
    assert f"{DEPLOY / 'cluster.toml'} is valid\n" == check_settings(DEPLOY / "cluster.toml")


def test_examples_that_are_commented_out_are_valid(tmp_path: Path) -> None:
    # "#key = value" is an example, "# Words" are words.
    text, changes = re.subn(r"(?m)^#(?=[a-z])", "", (DEPLOY / "cluster.toml").read_text(encoding="utf-8"))
    # The check reads these files too: the web configuration, which is tested with its certificates elsewhere, and keys.
    (tmp_path / "web.yml").touch()
    rotate_keys(tmp_path / "trace.key")
    text = text.replace("/etc/slurmscope/web.yml", str(tmp_path / "web.yml"))
    text = text.replace("/etc/slurmscope/trace.key", str(tmp_path / "trace.key"))
    (tmp_path / "cluster.toml").write_text(text, encoding="utf-8")

    assert changes > 3
    assert f"{tmp_path / 'cluster.toml'} is valid\n" == check_settings(tmp_path / "cluster.toml")


def test_example_settings_are_the_defaults() -> None:
    shown = [
        CliRunner().invoke(slurmscope, ["config", "show", "cluster", *arguments]).output
        for arguments in ((), ("--config.file", str(DEPLOY / "cluster.toml")))
    ]
    defaults, example = (re.sub(r"  # .*|# configuration file: .*", "", text) for text in shown)

    assert tomllib.loads((DEPLOY / "cluster.toml").read_text(encoding="utf-8"))
    assert defaults == example


@pytest.mark.parametrize("file", [SCRAPES, LARGE])
def test_scrape_configuration_is_valid(file: Path) -> None:
    assert_good(run("promtool", "check", "config", file))


def uncommented(file: Path) -> tuple[str, int]:
    """Return a configuration with its examples, and their number of lines."""
    # "#key: value" and "#- key" are examples, "# Words" are words.
    return re.subn(r"(?m)^( *)#(?=[a-z-])", r"\1", file.read_text(encoding="utf-8"))


def test_large_configuration_is_valid_with_its_example_uncommented(tmp_path: Path) -> None:
    text, changes = uncommented(LARGE)
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")

    assert 4 == changes
    assert_good(run("promtool", "check", "config", "--syntax-only", tmp_path / "prometheus.yml"))


def nodes_job(config: dict[str, Any]) -> dict[str, Any]:
    (job,) = [job for job in config["scrape_configs"] if job["job_name"] == "slurm-nodes"]
    return dict(job)


def test_each_node_is_scraped_by_one_of_the_servers_that_share_them(tmp_path: Path) -> None:
    job = nodes_job(yaml.safe_load(LARGE.read_text(encoding="utf-8")))
    del job["http_sd_configs"]
    nodes = [f"n{number}" for number in range(40)]
    job["static_configs"] = [{"targets": [f"{node}:9798"], "labels": {"__meta_slurm_node": node}} for node in nodes]
    asked = []
    for shard in range(SHARDS):
        job["relabel_configs"][-1]["regex"] = str(shard)
        file = tmp_path / f"{shard}.yml"
        file.write_text(json.dumps({"scrape_configs": [job]}), encoding="utf-8")
        # It waits for so long, whatever it has found.
        argv = [require_program("promtool"), "check", "service-discovery", "--timeout=3s", str(file), "slurm-nodes"]
        asked.append(subprocess.Popen(argv, stdout=subprocess.PIPE))
    found = [json.loads(process.communicate(timeout=60)[0]) for process in asked]
    kept = [[target["labels"]["instance"] for target in targets if target["labels"]] for targets in found]

    assert SHARDS == job["relabel_configs"][-2]["modulus"]
    assert sorted(nodes) == sorted(node for shard in kept for node in shard)
    assert all(kept)


def test_keep_list_keeps_the_profile_of_reports() -> None:
    (rule,) = nodes_job(yaml.safe_load(LARGE.read_text(encoding="utf-8")))["metric_relabel_configs"]
    assert "keep" == rule["action"]
    metrics = [metric for collector in all_collectors(Role.NODE) for metric in collector.metrics]
    for metric in (*metrics, *SELF_METRICS):
        for further in ({}, {"event": "oom_kill"}, {"event": "max"}, {"state": "running"}, {"state": "sleeping"},
                        {"pipe": "fp32"}, {"pipe": "hmma"}, {"has_ended": "true"}, {"has_ended": "false"}):  # fmt: skip
            labels = {"__name__": metric.name, "event": "", "state": "", "pipe": "", "has_ended": "", **further}
            # Prometheus joins the values with semicolons and anchors the expression at both ends.
            is_kept = re.fullmatch(rule["regex"], ";".join(labels[name] for name in rule["source_labels"])) is not None
            is_wanted = metric.name in REPORTS_METRICS
            for label, values in [REPORTS_CONDITIONS[metric.name]] if metric.name in REPORTS_CONDITIONS else []:
                is_wanted = is_wanted and labels[label] in values
            assert is_wanted == is_kept, labels


def test_scrape_configuration_is_valid_with_all_examples_uncommented(tmp_path: Path) -> None:
    text, changes = uncommented(SCRAPES)
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")

    names = [job["job_name"] for job in yaml.safe_load(text)["scrape_configs"]]
    assert changes >= 10
    assert ["slurm", "slurm-nodes", "slurmscope-portal"] == names
    assert_good(run("promtool", "check", "config", "--syntax-only", tmp_path / "prometheus.yml"))


def test_scrape_ports_are_the_defaults_of_the_examples() -> None:
    text = SCRAPES.read_text(encoding="utf-8")
    for name, target in (("cluster.toml", '["controller{}"]'), ("node.toml", '["&{}"]')):
        (address,) = tomllib.loads((DEPLOY / name).read_text(encoding="utf-8"))["web"]["listen-address"]
        assert target.format(address) in text


@pytest.mark.parametrize(
    ("address", "instance"),
    [
        ("n1:9798", "n1"),
        ("gpu-node_07.cluster.example.org:9798", "gpu-node_07"),
        ("10.1.2.3:9798", None),
        ("[fd00::17]:9798", None),
    ],
)
def test_instance_of_a_node_agent_is_its_short_host_name(address: str, instance: str | None) -> None:
    jobs = {job["job_name"]: job for job in yaml.safe_load(SCRAPES.read_text(encoding="utf-8"))["scrape_configs"]}
    (rule,) = jobs["slurm-nodes"]["relabel_configs"]

    # Prometheus anchors the expression at both ends and keeps its own label where it does not match.
    match = re.fullmatch(rule["regex"], address, re.ASCII)

    assert (["__address__"], "instance") == (rule["source_labels"], rule["target_label"])
    assert instance == (match[1] if match else None)


def test_wheel_has_every_file_of_deploy_that_is_not_its_generator() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    shared = build["targets"]["wheel"]["shared-data"]
    packed = {file for source in shared for file in (ROOT / source, *(ROOT / source).rglob("*")) if file.is_file()}
    wanted = {file for file in DEPLOY.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}

    assert wanted == packed
    assert {source: source.replace("deploy", "share/slurmscope", 1) for source in shared} == shared


def test_web_configuration_is_valid(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "web.yml", tmp_path)
    made = make_authority(tmp_path, "server")
    made.cert.rename(tmp_path / "server.crt")

    assert_good(run("promtool", "check", "web-config", tmp_path / "web.yml"))


def test_rules_do_what_their_cases_say() -> None:
    names = ["slurmscope-dcgm.yml", "slurmscope-jobs.yml", "slurmscope.yml"]
    assert names == [file.name for file in RULES] == [f.name for f in RULE_TESTS]
    assert_good(run("promtool", "check", "rules", *RULES))
    assert_good(run("promtool", "test", "rules", *RULE_TESTS))


def rules() -> Iterator[dict[str, Any]]:
    for file in RULES:
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]:
            yield from group["rules"]


def test_no_push_passes_for_what_rules_take_from_a_dcgm_exporter() -> None:
    read = {name for rule in rules() for name in re.findall(r"DCGM_FI_[A-Z_0-9]+", rule["expr"])}
    assert read
    assert read == {name for name in FOREIGN_METRICS if name.startswith("DCGM")}


def test_every_rule_has_a_case_in_which_it_speaks() -> None:
    cases = [case for file in RULE_TESTS for case in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]]
    fired = {check["alertname"] for case in cases for check in case.get("alert_rule_test", ()) if check["exp_alerts"]}
    recorded = {check["expr"] for case in cases for check in case.get("promql_expr_test", ()) if check["exp_samples"]}

    assert {rule["alert"] for rule in rules() if "alert" in rule} == fired
    assert {rule["record"] for rule in rules() if "record" in rule} == recorded


def test_every_rule_is_documented() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    documented = re.findall(r"(?m)^\| `([A-Za-z0-9_:]+)` \|", page)

    assert sorted(rule.get("alert") or rule["record"] for rule in rules()) == sorted(documented)


def test_every_alert_waits_and_says_what_it_means() -> None:
    for rule in rules():
        if "alert" in rule:
            assert {"alert", "expr", "for", "labels", "annotations"} == set(rule)
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert {"summary", "description", "runbook_url"} == set(rule["annotations"])
            page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            assert f'<a id="{anchor}"></a>' in (ROOT / page).read_text(encoding="utf-8")
            assert rule["alert"].lower() == anchor


def test_rules_query_metrics_that_exist_and_are_not_older_names() -> None:
    queried = queried_names(rule["expr"] for rule in rules())

    assert {"up", "slurm_nodes", "slurmscope_collector_success"} <= queried
    assert set() == queried - declared_names()


OF_SCRAPES = {"cluster", "job", "instance", "shard"}


def dashboard_expressions() -> Iterator[str]:
    for file in (DEPLOY / "grafana" / "dashboards").glob("*.json"):
        for expression in re.findall(
            r'"(?:expr|query|definition)": *("(?:[^"\\]|\\.)*")', file.read_text(encoding="utf-8")
        ):
            yield json.loads(expression)


def test_rules_and_dashboards_select_by_labels_that_the_metrics_have() -> None:
    declared = declared_labels()
    selected = selected_labels([*(rule["expr"] for rule in rules()), *dashboard_expressions()])

    assert {("slurm_cpus", "state"), ("gpu_recovery_action", "action"), ("jobs_info", "has_ended")} <= selected
    assert [] == [
        (name, label)
        for name, label in sorted(selected)
        if name in declared and label not in declared[name] | OF_SCRAPES
    ]


def test_units_agree_on_the_modes_of_folders() -> None:
    texts = {unit.name: unit.read_text(encoding="utf-8") for unit in DEPLOY.glob("*.service")}
    states, runs = (
        {name: found[0] for name, text in texts.items() if (found := re.findall(rf"(?m)^{key}=(.*)$", text))}
        for key in ("StateDirectoryMode", "RuntimeDirectoryMode")
    )

    assert {"0700"} == set(states.values())
    # Tasks of jobs connect to sockets of the node agent, whose own permissions decide.
    assert {"slurmscope-node.service": "0755", "slurmscope-portal.service": "0750"} == runs
