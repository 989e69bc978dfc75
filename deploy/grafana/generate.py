# SPDX-License-Identifier: Apache-2.0
"""Write the dashboard of a cluster as Grafana wants it.

Change a panel in ``jobs.py`` or ``machines.py`` beside this file, then run ``python -m deploy.grafana.generate``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.grafana.jobs import ENDED, NOW, QUEUE, SHARES, WAITS
from deploy.grafana.machines import GPUS, NODES, SCHEDULER, SELF
from deploy.grafana.panels import FULL, Look, Panel, Row

Json = dict[str, object]

OUTPUT = Path(__file__).with_name("cluster.json")
ROWS = (NOW, QUEUE, WAITS, ENDED, NODES, GPUS, SCHEDULER, SHARES, SELF)
"""The dashboard from top to bottom."""

# Of Grafana 10; later ones bring a dashboard up to date when they load it.
SCHEMA_VERSION = 38
EXPORTER = 'instance="$instance"'
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
HEIGHTS = {Look.NUMBER: 4, Look.DIAL: 4}
USUAL_HEIGHT = 8
# These show the newest value only, so there is no need to ask for a range.
INSTANT = (Look.BARS, Look.TABLE)
GREEN, YELLOW, RED = "green", "yellow", "red"


def dashboard(rows: Sequence[Row] = ROWS) -> Json:
    """Build the whole document."""
    return {
        "id": None,
        "uid": "slurmscope-cluster",
        "title": "Slurm cluster",
        "description": "Jobs, nodes, GPUs and scheduler of a Slurm cluster, from slurmscope.",
        "tags": ["slurm", "slurmscope"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [],
        "annotations": {"list": []},
        "templating": {"list": [_source_variable(), *_cluster_variables(), *_choices()]},
        "panels": list(_place(rows)),
    }


def _source_variable() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}


def _cluster_variables() -> Iterator[Json]:
    """Let a cluster be chosen by its name, and one of its exporters where there are several."""
    yield _variable("cluster", "Cluster", "label_values(slurm_info, cluster_name)")
    yield _variable("instance", "Exporter", 'label_values(slurm_info{cluster_name="$cluster"}, instance)')


def _choices() -> Iterator[Json]:
    """Let several, or all, be chosen; Grafana puts a regular expression in the place of the variable."""
    for name, label, metric in (
        ("partition", "Partition", "slurm_partition_nodes_usable"),
        ("account", "Account", "slurm_account_jobs"),
    ):
        variable = _variable(name, label, f"label_values({metric}{{{EXPORTER}}}, {name})")
        yield {
            **variable,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }


def _place(rows: Sequence[Row]) -> Iterator[Json]:
    """Lay panels out from left to right and top to bottom; a folded row holds its panels itself."""
    top, number = 0, 1
    for row in rows:
        line: Json = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.is_folded,
            "gridPos": {"h": 1, "w": FULL, "x": 0, "y": top},
        }
        panels, bottom = _place_panels(row.panels, top + 1, number + 1)
        yield {**line, "panels": panels if row.is_folded else []}
        if not row.is_folded:
            yield from panels
        top, number = bottom, number + 1 + len(panels)


def _place_panels(panels: Sequence[Panel], top: int, number: int) -> tuple[list[Json], int]:
    placed: list[Json] = []
    left, height = 0, 0
    for panel in panels:
        if left + panel.width > FULL:
            left, top, height = 0, top + height, 0
        own_height = HEIGHTS.get(panel.look, USUAL_HEIGHT)
        position = {"h": own_height, "w": panel.width, "x": left, "y": top}
        placed.append({"id": number + len(placed), "gridPos": position, **_panel(panel)})
        left, height = left + panel.width, max(height, own_height)
    return placed, top + height


def _panel(panel: Panel) -> Json:
    kind, options = _kind(panel)
    return {
        "type": kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "targets": list(_targets(panel)),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": options,
        "transformations": _transformations(panel),
    }


def _targets(panel: Panel) -> Iterator[Json]:
    formats = {Look.TABLE: "table", Look.HEATMAP: "heatmap"}
    is_instant = panel.look in INSTANT
    for index, query in enumerate(panel.queries):
        yield {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": query.expression.replace("@", EXPORTER),
            "legendFormat": query.name or "__auto",
            "format": formats.get(panel.look, "time_series"),
            "instant": is_instant,
            "range": not is_instant,
        }


def _kind(panel: Panel) -> tuple[str, Json]:
    """Return Grafana's name for the look, and its options."""
    newest = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if panel.look is Look.NUMBER:
        return "stat", {"reduceOptions": newest, "colorMode": "value", "graphMode": "area", "textMode": "auto"}
    if panel.look is Look.DIAL:
        return "gauge", {"reduceOptions": newest, "showThresholdLabels": False, "showThresholdMarkers": True}
    if panel.look is Look.BARS:
        return "bargauge", {"reduceOptions": newest, "displayMode": "basic", "orientation": "horizontal"}
    if panel.look is Look.TABLE:
        return "table", {"showHeader": True, "cellHeight": "sm"}
    if panel.look is Look.HEATMAP:
        colours = {"mode": "scheme", "scheme": "Oranges", "steps": 64}
        return "heatmap", {"calculate": False, "color": colours, "yAxis": {"unit": panel.unit}, "cellGap": 1}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    return "timeseries", {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit, "mappings": list(_mappings(panel)), "thresholds": _thresholds(panel)}
    if panel.look is Look.TABLE:
        return defaults
    defaults["min"] = 0
    if panel.unit == "percentunit" and panel.look in (Look.DIAL, Look.BARS):
        defaults["max"] = 1
    if panel.look in (Look.LINES, Look.STACK):
        is_stack = panel.look is Look.STACK
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 40 if is_stack else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if is_stack else "none", "group": "A"},
        }
    return defaults


def _thresholds(panel: Panel) -> Json:
    steps = ((None, GREEN), (panel.warn_from, YELLOW), (panel.bad_from, RED))
    return {
        "mode": "absolute",
        "steps": [
            {"color": colour, "value": value}
            for index, (value, colour) in enumerate(steps)
            if index == 0 or value is not None
        ],
    }


def _mappings(panel: Panel) -> Iterator[Json]:
    if panel.words:
        words = {value: {"text": text, "color": colour} for value, text, colour in panel.words}
        yield {"type": "value", "options": words}


def _transformations(panel: Panel) -> list[Json]:
    """Keep the columns that are named, in their order, under their names."""
    if not panel.columns:
        return []
    kept = [name for name, _ in panel.columns]
    order = {name: index for index, name in enumerate(kept)}
    return [
        {"id": "filterFieldsByName", "options": {"include": {"names": kept}}},
        {"id": "organize", "options": {"indexByName": order, "renameByName": dict(panel.columns)}},
    ]


def main() -> None:
    """Write the file beside this one."""
    OUTPUT.write_text(json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
