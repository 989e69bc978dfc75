# SPDX-License-Identifier: Apache-2.0
"""Draw previews of dashboards for the documentation; ``make screenshots`` calls it.

A Prometheus gets six hours of a simulated cluster and the series that the rules record, and answers the queries of the
panels. The charts are those of our reports: Grafana draws them in its own way.
"""

from __future__ import annotations

import html
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from playwright.sync_api import sync_playwright
from prometheus_client.parser import text_string_to_metric_families

from deploy.grafana import cluster as cluster_module
from deploy.grafana import job as job_module
from deploy.grafana.generate import PAGE_WIDTH, dashboard, with_matchers
from deploy.grafana.panels import Dashboard, Look, Panel
from lab.prometheus import Server, create_blocks, run_prometheus
from slurmscope.jobs.render.svg.charts import format_value, render_chart_svg
from slurmscope.jobs.report import Chart, ChartLine
from slurmscope.jobs.rule import Subject
from slurmscope.simulator.cluster.busy_day import fill, samples_of
from slurmscope.simulator.cluster.cluster import calm, simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands.executables import write_fake_commands
from slurmscope.simulator.history.accounting import SimulatedAccounting
from slurmscope.simulator.history.workload_series import samples_at
from slurmscope.simulator.history.workloads import Workload

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SEED = 1
SHOWN_SECONDS, STEP_SECONDS = 6 * 3600, 60
WIDTH, ROW_HEIGHT = 1280, 32
ROWS = 34
"""Of the grid of Grafana: what does not fit is left out."""
LONGEST = 6
"""Lines of a table."""
EXPORTER = "controller:9092"
CLUSTER = cluster_module.DASHBOARD
JOB = replace(job_module.DASHBOARD, rows=(job_module.NOW, job_module.CPU, job_module.MEMORY, job_module.GPUS))
UNITS = {"percentunit": "ratio", "bytes": "bytes", "Bps": "bytes/s", "watt": "watts"}
STYLE = """body { margin: 0; background: #f4f5f5; font: 13px sans-serif; position: relative }
div { position: absolute; overflow: hidden; box-sizing: border-box; background: #fff; border: 1px solid #dcdee0 }
div.row { background: none; border: 0; font-weight: 600; padding: 8px 0 }
b { display: block; padding: 6px 8px 2px } p { font-size: 28px; margin: 10px 8px; color: #2f7d31 }
div.row b { padding: 0 } table { margin: 4px; border-spacing: 6px 4px; width: 96% } tr { text-align: left }
meter { width: 100% } td.bar { width: 60% }"""


class Box(NamedTuple):
    """Place of a panel, in pixels."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class View:
    """What is looked at: a Prometheus, a moment, and the values of the variables."""

    server: Server
    since: int
    now: int
    variables: dict[str, str]

    def has(self, panel: Panel) -> bool:
        return any(self.read_newest(expression) for expression in panel.queries.values())

    def fill_in(self, text: str) -> str:
        return re.sub(r"\$(\w+)", lambda found: self.variables[found[1]], with_matchers(text))

    def read_curves(self, expression: str) -> list[tuple[dict[str, str], dict[int, float]]]:
        """Return the series of a query, each with its values by time."""
        span = {"start": str(self.since), "end": str(self.now), "step": str(STEP_SECONDS)}
        answer = json.loads(self.server.get("/api/v1/query_range", query=self.fill_in(expression), **span))
        return [
            (one["metric"], {int(at): float(value) for at, value in one["values"]}) for one in answer["data"]["result"]
        ]

    def read_newest(self, expression: str) -> list[tuple[dict[str, str], float]]:
        answer = json.loads(self.server.get("/api/v1/query", query=self.fill_in(expression), time=str(self.now)))
        found = [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]
        return sorted((one for one in found if math.isfinite(one[1])), key=lambda one: -one[1])


def main() -> None:
    """Draw the dashboards of the cluster and of a job."""
    now = int(time.time()) // STEP_SECONDS * STEP_SECONDS
    cluster = fill(calm(simulate(Shape(seed=SEED), now=now)))
    workload = max(SimulatedAccounting(cluster).running_workloads, key=_suits_a_picture)
    variables = {"instance": EXPORTER, "cluster": cluster.name, "job": str(workload.job_id)}
    variables |= {"__rate_interval": "5m", "__range": f"{SHOWN_SECONDS}s"}
    with TemporaryDirectory() as name:
        folder = Path(name)
        history = (*_past_of_cluster(cluster, folder / "bin"), *_past_of_job(workload, now), "# EOF\n")
        create_blocks(folder, "".join(history))
        _record(folder, now)
        with run_prometheus(folder, "{}") as server:
            start = max(int(workload.start_seconds), now - SHOWN_SECONDS) // STEP_SECONDS * STEP_SECONDS
            pages = {
                declared.name: _draw(declared, View(server, since, now, variables))
                for declared, since in ((CLUSTER, now - SHOWN_SECONDS), (JOB, start))
            }
    _take_pictures(pages)


def _suits_a_picture(workload: Workload) -> tuple[bool, bool, float]:
    """Prefer jobs of several nodes with GPUs, and of those the one that has run longest."""
    return len(workload.nodes) > 1, any(node.gpus for node in workload.nodes), -workload.start_seconds


def _past_of_cluster(cluster: SimulatedCluster, commands: Path) -> Iterator[str]:
    """Yield what the exporter would have served: its page of now, with other numbers of jobs and CPUs."""
    write_fake_commands(cluster, commands)
    argv = (sys.executable, "-m", "slurmscope", "cluster", "--once", "--slurm.bin-path", str(commands))
    page = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True).stdout
    wanted = set(re.findall(r"\w+", json.dumps(dashboard(CLUSTER)))) | {"slurm_partition_cpus"}
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples if s.name in wanted]
    allocated = sum(node.cpus_allocated for node in cluster.nodes)
    scraped = (("instance", EXPORTER), ("job", "slurm"))
    for at in range(cluster.now - SHOWN_SECONDS, cluster.now + 1, STEP_SECONDS):
        then = {(name, labels): value for name, labels, value in samples_of(cluster, at)}
        busy = sum(value for (_, labels), value in then.items() if ("state", "allocated") in labels)
        for sample in samples:
            labels = tuple(sorted(sample.labels.items()))
            value = then.get((sample.name, labels), sample.value)
            if sample.name in ("slurm_load", "slurm_allocated_memory_bytes"):
                value *= busy / allocated
            yield _line(sample.name, (*labels, *scraped), value, at)


def _past_of_job(workload: Workload, now: int) -> Iterator[str]:
    for at in range(now - SHOWN_SECONDS, now + 1, STEP_SECONDS):
        for name, labels, value in samples_at([workload], at):
            yield _line(name, labels, value, at)


def _line(name: str, labels: Iterable[tuple[str, str]], value: float, at: int) -> str:
    inner = ",".join(f"{label}={json.dumps(text, ensure_ascii=False)}" for label, text in labels)
    return f"{name}{{{inner}}} {value} {at}\n"


def _record(folder: Path, now: int) -> None:
    """Add the series that the rules record; Prometheus reads them when it starts again."""
    rules = [str(ROOT / "deploy/rules" / name) for name in ("slurmscope.yml", "slurmscope-jobs.yml")]
    with run_prometheus(folder, "{}") as server:
        span = (f"--start={now - SHOWN_SECONDS}", f"--end={now}", f"--url={server.url}")
        argv = ("promtool", "tsdb", "create-blocks-from", "rules", *span, f"--output-dir={folder}/recorded", *rules)
        subprocess.run(argv, capture_output=True, timeout=300, check=True)
    for block in (folder / "recorded").iterdir():
        block.rename(folder / "data" / block.name)


def _draw(declared: Dashboard, view: View) -> tuple[str, int]:
    """Return a page with the panels where Grafana has them, without those that have no numbers, and its height."""
    rows = [replace(row, panels=tuple(panel for panel in row.panels if view.has(panel))) for row in declared.rows]
    panels = iter([panel for row in rows for panel in row.panels])
    placed = json.loads(json.dumps(dashboard(replace(declared, rows=tuple(rows)))))["panels"]
    parts, bottom = [], 0
    for each in placed:
        spot = each["gridPos"]
        panel = next(panels) if each["type"] != "row" else None
        if spot["y"] + spot["h"] + (0 if panel else 4) > ROWS:
            break
        bottom = spot["y"] + spot["h"]
        box = Box(
            left=spot["x"] * WIDTH // PAGE_WIDTH + 3,
            top=spot["y"] * ROW_HEIGHT + 3,
            width=spot["w"] * WIDTH // PAGE_WIDTH - 6,
            height=spot["h"] * ROW_HEIGHT - 6,
        )
        style = ";".join(f"{name}:{value}px" for name, value in box._asdict().items())
        title = f"<b>{html.escape(view.fill_in(each['title']))}</b>"
        body = title if panel is None else _draw_panel(panel, title, view, box)
        parts.append(f'<div class="{each["type"]}" style="{style}">{body}</div>')
    page = f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><body>{''.join(parts)}"
    return page, bottom * ROW_HEIGHT + 6


def _draw_panel(panel: Panel, title: str, view: View, box: Box) -> str:
    match panel.look:
        case Look.LINES | Look.STACK | Look.HEATMAP:
            return _chart(panel, view, box)
        case Look.BARS:
            return title + _bars(panel, view)
        case Look.TABLE:
            return title + _table(panel, view)
        case _:
            (_, value), *_ = view.read_newest(next(iter(panel.queries.values())))
            return f"{title}<p>{html.escape(_format(value, panel))}</p>"


def _chart(panel: Panel, view: View, box: Box) -> str:
    times = tuple(float(at) for at in range(view.since, view.now + 1, STEP_SECONDS))
    lines = tuple(
        ChartLine(label=_name(name, labels), values=tuple(values.get(int(at)) for at in times))
        for name, expression in panel.queries.items()
        for labels, values in view.read_curves(expression)
    )
    unit = UNITS.get(panel.unit, "count")
    chart = Chart(name="", title=panel.title, unit=unit, subject=Subject.CPU, times=times, lines=lines)
    return render_chart_svg(chart, width=box.width - 2, height=box.height - 2)


def _bars(panel: Panel, view: View) -> str:
    found = [
        (_name(name, labels), value)
        for name, expression in panel.queries.items()
        for labels, value in view.read_newest(expression)[:LONGEST]
    ]
    most = 1.0 if panel.unit == "percentunit" else max(value for _, value in found)
    rows = (
        f"<tr><td>{html.escape(name)}<td class=bar><meter max={most} value={value}></meter>"
        f"<td>{html.escape(_format(value, panel))}"
        for name, value in found
    )
    return f"<table>{''.join(rows)}</table>"


def _table(panel: Panel, view: View) -> str:
    """Show the rows of all queries that have the same labels as one."""
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for name, expression in panel.queries.items():
        unit = (panel.units or {}).get(name, panel.unit)
        for labels, value in view.read_newest(expression)[:LONGEST]:
            key = tuple(labels.get(label, "") for label in panel.labels)
            cells.setdefault(key, {})[name] = _format(value, replace(panel, unit=unit))
    lines = [
        (*panel.labels, *panel.queries),
        *((*key, *(c.get(n, "") for n in panel.queries)) for key, c in cells.items()),
    ]
    return (
        "<table>"
        + "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in line) for line in lines)
        + "</table>"
    )


def _format(value: float, panel: Panel) -> str:
    if panel.unit == "dateTimeAsIso":
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(value / 1000))
    words = {known: text for known, text, _ in panel.words}
    return words.get(f"{value:g}") or format_value(value, UNITS.get(panel.unit, "count"))


def _name(name: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), name)


def _take_pictures(pages: dict[str, tuple[str, int]]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, (text, height) in pages.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": height})
            page.set_content(text)
            page.screenshot(path=IMAGES / f"dashboard-{name}.png")
            print(f"docs/images/dashboard-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
