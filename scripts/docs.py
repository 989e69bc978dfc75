# SPDX-License-Identifier: Apache-2.0
"""Generate the parts of the documentation that are derived from the code, or check that they are up to date.

A page in ``docs/``, or a YAML file in ``deploy/``, marks such a part with ``<!-- generated: NAME -->`` and
``<!-- end -->``. Dashboards of Grafana are generated as a whole.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import click

from deploy.grafana import generate as grafana
from slurmscope.accounting.grant import database_sections
from slurmscope.cli import slurmscope
from slurmscope.cli.options import explain_removed, format_default, translate
from slurmscope.cli.roles import all_collectors, feature_metrics, find_role
from slurmscope.core.settings import Section, Setting
from slurmscope.core.units import format_seconds
from slurmscope.exporter.collector import Role
from slurmscope.exporter.self_metrics import SELF_METRICS
from slurmscope.jobs.findings import RULES
from slurmscope.jobs.queries import REPORTS_CONDITIONS, REPORTS_METRICS
from slurmscope.metrics.family import Metric
from slurmscope.migrate.check import SYSTEMS
from slurmscope.migrate.old_systems import OldMetrics, OldSystem
from slurmscope.migrate.slurm_exporter import FLAGS
from slurmscope.portal.metrics import PORTAL_METRICS
from slurmscope.portal.settings import portal_sections
from slurmscope.reports.settings import command_sections, report_sections, rule_section
from slurmscope.up.settings import up_sections
from slurmscope.up.up import RECORDING_METRICS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CONTEXT = {**slurmscope.context_settings, "terminal_width": 100}
EVERYWHERE = feature_metrics(Role.NODE)
FEATURE_METRICS = tuple(metric for metric in feature_metrics(Role.CLUSTER) if metric not in EVERYWHERE)
DECLARED: dict[str, Metric] = {
    metric.name: metric
    for metric in (*(m for role in Role for c in all_collectors(role) for m in c.metrics), *FEATURE_METRICS)
}
BOOLEAN_FLAGS = {
    declared.flag
    for section in find_role("cluster").sections()
    for declared in section.settings()
    if declared.is_boolean
}

PART = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?((?: *# )?<!-- end -->)", re.DOTALL)


def main() -> int:
    """Rewrite every page, or with ``--check`` report which ones would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when a page is out of date")
    is_check = parser.parse_args().check
    stale = []
    for file, text in _generated():
        if not file.exists() or text != file.read_text(encoding="utf-8"):
            stale.append(file.name)
            if not is_check:
                file.write_text(text, encoding="utf-8")
    if stale:
        print(f"docs: {', '.join(stale)} {'are out of date: run make docs' if is_check else 'rewritten'}")
    return 1 if stale and is_check else 0


def _generated() -> Iterator[tuple[Path, str]]:
    """Yield every page, file of ``deploy`` and dashboard as it should be."""
    for page in (*sorted(DOCS.rglob("*.md")), *sorted((ROOT / "deploy").glob("*.yml"))):
        yield page, generate(page.read_text(encoding="utf-8"))
    yield from grafana.files().items()


def generate(text: str) -> str:
    """Return a page with every generated part replaced."""
    return PART.sub(lambda part: f"{part[1]}\n{''.join(PARTS[part['name']]())}\n{part[3]}", text)


def cluster_metrics() -> Iterator[str]:
    """Describe the metrics of every cluster collector."""
    yield from _collector_tables(Role.CLUSTER)
    yield "### Slurm commands\n\nAlways enabled.\n\n"
    yield from _metric_table(FEATURE_METRICS)


def node_metrics() -> Iterator[str]:
    """Describe the metrics of every node collector."""
    return _collector_tables(Role.NODE)


def self_metrics() -> Iterator[str]:
    """Describe the metrics of the exporters themselves."""
    return _metric_table((*SELF_METRICS, *EVERYWHERE))


def cluster_settings() -> Iterator[str]:
    """Describe the settings of the cluster exporter."""
    return _settings_table(find_role("cluster").sections())


def node_settings() -> Iterator[str]:
    """Describe the settings of the node agent."""
    return _settings_table(find_role("node").sections())


def portal_metrics() -> Iterator[str]:
    """Describe the metrics of the portal and the recorder."""
    return _metric_table((*PORTAL_METRICS, *RECORDING_METRICS))


def report_settings() -> Iterator[str]:
    """Describe the settings of reports; thresholds of rules have their own page."""
    known = {"slurm", "log", "recorder"}
    sections = (section for section in command_sections() if section.name not in known)
    return _settings_table(section for section in sections if not section.name.startswith("rules"))


def portal_settings() -> Iterator[str]:
    """Describe the settings that the portal has in addition to those of reports."""
    return _settings_table(_without(portal_sections(), report_sections()))


def up_settings() -> Iterator[str]:
    """Describe the settings that slurmscope up has in addition to those of the portal."""
    return _settings_table(_without(up_sections(), portal_sections()))


def database_settings() -> Iterator[str]:
    """Describe the settings that slurmscope database has in addition to those of reports."""
    return _settings_table(_without(database_sections(), report_sections()))


def rules() -> Iterator[str]:
    """Describe every rule and its thresholds."""
    yield from _thresholds("")
    for rule in RULES:
        yield f"### {rule.id}\n\n**{rule.title}.** {rule.severity.value.capitalize()}, about {rule.subject}.\n\n"
        yield f"Needs: {rule.needs}.\n\n{rule.advice}\n\n"
        if rule.explains:
            yield f"May explain: {', '.join(f'[{other}](#{other})' for other in rule.explains)}.\n\n"
        if rule.min_run_seconds:
            yield f"Checks jobs that ran for at least {format_seconds(rule.min_run_seconds)}.\n\n"
        yield from _thresholds(rule.id)


def _thresholds(rule_id: str) -> Iterator[str]:
    section = rule_section(rule_id)
    if section is not None:
        yield "| threshold | default | meaning |\n|---|---|---|\n"
        for declared in section.settings():
            yield f"| `{declared.key}` | `{declared.format(declared.default)}` | {declared.help} |\n"
        yield "\n"


def keep_list() -> Iterator[str]:
    """Write the rule by which Prometheus keeps the metrics of the profile ``reports``."""
    labels = sorted({label for label, _ in REPORTS_CONDITIONS.values()})
    names = sorted(REPORTS_METRICS - REPORTS_CONDITIONS.keys())
    # A backslash ends a line of the expression without a space.
    yield f"      - action: keep\n        source_labels: [__name__, {', '.join(labels)}]\n"
    yield '        regex: "(?:' + "\\\n          |".join(names) + ");.*"
    for metric, (label, values) in sorted(REPORTS_CONDITIONS.items()):
        parts = [f"(?:{'|'.join(sorted(values))})" if name == label else ".*" for name in labels]
        yield f"\\\n          |{metric};{';'.join(parts)}"
    yield '"\n'


def old_metrics(system: OldSystem) -> Iterator[str]:
    """Describe the metrics of a replaced tool: those that slurmscope has, and those that it has not."""
    for group in system.groups:
        kept = [(names, metrics) for metrics in group.metrics if (names := _declared(metrics))]
        if kept:
            yield f"### {group.title}\n\n" + (f"{group.note}\n\n" if group.note else "")
            yield "| metric | type | labels | difference |\n|---|---|---|---|\n"
            for names, metrics in kept:
                first = DECLARED[names[0]]
                yield f"| {_code(names)} | {first.kind.value} | {_code(first.labels) or '–'} | {metrics.difference} |\n"
            yield "\n"
    rows = [(names, metrics.missing) for metrics in system.metrics() if (names := _not_declared(metrics))]
    if rows:
        yield "### Not available under the older name\n\n| metric | reason |\n|---|---|\n"
        yield from (f"| {_code(names)} | {why} |\n" for names, why in rows)
        yield "\n"


def old_flags() -> Iterator[str]:
    """Show what became of the flags of the replaced Slurm exporter, as the exporter understands them."""
    yield "| older flag | here | difference |\n|---|---|---|\n"
    for flag, difference in FLAGS.items():
        yield f"| `{flag}` | {_understood(flag)} | {difference or '–'} |\n"


def _understood(flag: str) -> str:
    try:
        with redirect_stdout(io.StringIO()):
            slurmscope.main(["config", "check", "cluster", flag], standalone_mode=False)
    except click.UsageError:
        _, _, remedy = explain_removed([flag]).partition(". ")
        return f"not available. {remedy}" if remedy else "not available yet"
    return _code(translate([flag], BOOLEAN_FLAGS)) or "ignored"


def _declared(metrics: OldMetrics) -> list[str]:
    return [name for name in metrics.names if name in DECLARED]


def _not_declared(metrics: OldMetrics) -> list[str]:
    return [name for name in metrics.names if name not in DECLARED]


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def dashboards() -> Iterator[str]:
    """Describe every dashboard, and what it needs besides the cluster exporter with its default collectors."""
    off = {m.name: c for c in all_collectors(Role.CLUSTER) if not c.is_default for m in c.metrics}
    of_agents = {m.name for collector in all_collectors(Role.NODE) for m in collector.metrics}
    of_portal = {metric.name for metric in PORTAL_METRICS}
    yield "| dashboard | shows | needs |\n|---|---|---|\n"
    for declared in grafana.DASHBOARDS:
        text = json.dumps(grafana.dashboard(declared)).replace("\\", "")
        queried = set(re.findall(r"\w+", text))
        others = {
            metric
            for metric, (label, values) in REPORTS_CONDITIONS.items()
            if not any(f'{label}="{value}"' in text for value in values)
        }
        needs = [f"`collector.{name}`" for name in sorted({off[metric].name for metric in queried & off.keys()})]
        if queried & of_agents:
            profile = "" if queried & of_agents <= REPORTS_METRICS - others else " with the profile `standard`"
            needs.insert(0, f"node agents{profile}")
        needs += ["portal"] if queried & of_portal else []
        yield f"| `{declared.name}.json` | {declared.text} | {', '.join(needs) or '–'} |\n"


def commands() -> Iterator[str]:
    """Show the short help of every command."""
    yield from _help(slurmscope, click.Context(slurmscope, info_name="slurmscope", **CONTEXT))


PARTS: dict[str, Callable[[], Iterable[str]]] = {
    "cluster-metrics": cluster_metrics,
    "node-metrics": node_metrics,
    "self-metrics": self_metrics,
    "cluster-settings": cluster_settings,
    "node-settings": node_settings,
    "report-settings": report_settings,
    "portal-settings": portal_settings,
    "up-settings": up_settings,
    "database-settings": database_settings,
    "portal-metrics": portal_metrics,
    "rules": rules,
    "commands": commands,
    "dashboards": dashboards,
    "keep-list": keep_list,
    "slurm-exporter-flags": old_flags,
    **{f"{system.page}-metrics": partial(old_metrics, system) for system in SYSTEMS},
}


def _collector_tables(role: Role) -> Iterator[str]:
    for collector in all_collectors(role):
        state = "on" if collector.is_default else "off"
        yield f"### {collector.name}\n\n{collector.help} `--collector.{collector.name}`, {state} by default.\n\n"
        yield from _metric_table(collector.metrics)
        yield "\n"


def _metric_table(metrics: Iterable[Metric]) -> Iterator[str]:
    yield "| metric | type | labels | meaning |\n|---|---|---|---|\n"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        kept = " *(kept name)*" if metric.is_compat else ""
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help}{kept} |\n"


def _without(sections: Iterable[Section], others: Iterable[Section]) -> Iterator[Section]:
    """Leave out the sections of another table."""
    known = {section.name for section in others}
    return (section for section in sections if section.name not in known)


def _settings_table(sections: Iterable[Section]) -> Iterator[str]:
    yield "| key | flag | environment variable | default | meaning |\n|---|---|---|---|---|\n"
    for section in sections:
        for declared in section.settings():
            names = ", ".join(f"`{name}`" for name in declared.environment)
            yield f"| `{declared.key}` | `{_flag(declared)}` | {names} | {_default(declared)} | {declared.help} |\n"


def _flag(declared: Setting) -> str:
    # A bar would end the cell of the table.
    flag = f"--[no-]{declared.flag}" if declared.is_boolean else f"--{declared.flag} {declared.metavar}"
    return flag.replace("|", "\\|")


def _default(declared: Setting) -> str:
    default = format_default(declared)
    if declared.is_boolean:
        return default
    return f"`{default}`" if default else "–"


def _help(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                inner = click.Context(child, parent=context, info_name=name, **CONTEXT)
                yield from _help(child, inner)


if __name__ == "__main__":
    sys.exit(main())
