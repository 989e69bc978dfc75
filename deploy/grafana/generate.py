# SPDX-License-Identifier: Apache-2.0
"""Write the dashboards as Grafana wants them: one JSON file for each module beside this one that declares one.

Change a panel in its module, then run ``python -m scripts.docs``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from deploy.grafana import cluster, energy, filesystems, gpus, job, node, partition, queue, slurmscope, users
from deploy.grafana.panels import Choice, Dashboard, Look, Panel, Row

Json = dict[str, object]

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS = tuple(
    module.DASHBOARD for module in (cluster, queue, partition, node, job, users, gpus, energy, filesystems, slurmscope)
)
SCHEMA_VERSION = 38
"""Of Grafana 10; later ones bring a dashboard up to date when they load it."""
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
# A site with one cluster has no label cluster, unless it wants one.
MATCHERS = {"CLUSTER": 'instance="$instance"', "NODE": 'cluster=~"$cluster|"', "PORTAL": 'job="slurmscope-portal"'}
PORTAL_URL = "https://jobs.example.org"
"""In a hidden variable; people replace it."""

PAGE_WIDTH = 24
KINDS = {
    Look.LINES: "timeseries",
    Look.STACK: "timeseries",
    Look.NUMBER: "stat",
    Look.NAME: "stat",
    Look.DIAL: "gauge",
    Look.BARS: "bargauge",
    Look.TABLE: "table",
    Look.HEATMAP: "heatmap",
}
SIZES = {Look.NUMBER: (4, 4), Look.NAME: (4, 4), Look.DIAL: (4, 4), Look.TABLE: (12, 8)}
USUAL_SIZE = (8, 8)
INSTANT = (Look.BARS, Look.TABLE)
"""These show the newest value only, so there is no need to query a range."""
FORMATS = {Look.TABLE: "table", Look.HEATMAP: "heatmap"}

COLOURS = {
    "green": ("RUNNING", "COMPLETED", "allocated"),
    "yellow": ("PENDING", "planned", "mixed"),
    "blue": ("idle", "CONFIGURING", "COMPLETING"),
    "orange": ("TIMEOUT", "SUSPENDED", "PREEMPTED"),
    "purple": ("CANCELLED",),
    "red": ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "down", "unusable", "error"),
}
"""States that have the same colour everywhere; all other series get theirs from their name."""
STATE_LABELS = ("{{state}}", "{{base_state}}")

JOB_LINKS = (("Job", "/d/slurmscope-job?var-job={}"), ("Report", "${{portal}}/jobs/${{cluster}}/{}"))
NODE_LINKS = (("Node", "/d/slurmscope-node?var-node={}"), ("Node in the portal", "${{portal}}/nodes/{}"))
LINKS = {
    "slurm_job": JOB_LINKS,
    "jobid": JOB_LINKS,
    "slurm_node": NODE_LINKS,
    "node": NODE_LINKS,
    "instance": NODE_LINKS,
    "user": (("User", "/d/slurmscope-users?var-user={}"), ("User in the portal", "${{portal}}/users/{}")),
    "account": (
        ("Account", "/d/slurmscope-users?var-account={}"),
        ("Account in the portal", "${{portal}}/accounts/{}"),
    ),
    "partition": (("Partition", "/d/slurmscope-partition?var-partition={}"),),
}
"""Where the value of a label leads, wherever it is shown."""
CARRIED = "&${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}"


def files() -> dict[Path, str]:
    """Return the text of every generated file."""
    return {FOLDER / f"{declared.name}.json": to_text(dashboard(declared)) for declared in DASHBOARDS}


def to_text(document: Json) -> str:
    """Write one panel or variable a line: small, and a difference shows what has changed."""

    def compact(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def entry(value: object) -> str:
        if isinstance(value, list) and value:
            return "[\n  " + ",\n  ".join(map(compact, value)) + "\n ]"
        return compact(value)

    return "{\n" + ",\n".join(f' "{key}":{entry(value)}' for key, value in document.items()) + "\n}\n"


def dashboard(declared: Dashboard) -> Json:
    """Build the whole document."""
    return {
        "uid": f"slurmscope-{declared.name}",
        "title": declared.title,
        "description": declared.text,
        "tags": ["slurmscope"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": list(_links(declared)),
        "annotations": {"list": []},
        "templating": {"list": [*_common_variables(), *map(_choice, declared.choices)]},
        "panels": list(_place(declared.rows)),
    }


def _links(declared: Dashboard) -> Iterator[Json]:
    """Link the other dashboards, and the portal."""
    common = {"icon": "external link", "targetBlank": False, "tooltip": ""}
    yield {
        **common, "type": "dashboards", "title": "slurmscope", "tags": ["slurmscope"], "url": "",
        "asDropdown": True, "includeVars": True, "keepTime": True,
    }  # fmt: skip
    yield {
        **common, "type": "link", "title": "Portal", "tags": [], "url": f"${{portal}}{declared.portal_page}",
        "asDropdown": False, "includeVars": False, "keepTime": False,
    }  # fmt: skip


def _common_variables() -> Iterator[Json]:
    """Let data source and cluster be chosen; one of the exporters of the cluster, and the portal, are hidden."""
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}
    yield _variable("cluster", "Cluster", "label_values(slurm_info, cluster_name)")
    exporters = 'label_values(slurm_info{cluster_name="$cluster"}, instance)'
    yield {**_variable("instance", "Exporter", exporters), "hide": 2}
    yield {"name": "portal", "label": "Portal", "type": "constant", "query": PORTAL_URL, "hide": 2}


def _choice(choice: Choice) -> Json:
    query = f"label_values({with_matchers(choice.series)}, {choice.label})"
    variable = _variable(choice.name, choice.title, query)
    if not choice.is_multiple:
        return variable
    # Grafana puts a regular expression in the place of the variable.
    everything = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return {**variable, "multi": True, "includeAll": True, "allValue": ".*", "current": everything}


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }


def with_matchers(expression: str) -> str:
    """Replace the words that stand for matchers."""
    return re.sub(r"\b(?:CLUSTER|NODE|PORTAL)\b(?=[,}])", lambda word: MATCHERS[word[0]], expression)


def _place(rows: Sequence[Row]) -> Iterator[Json]:
    """Lay panels out from left to right and top to bottom; a folded row holds its panels itself."""
    top, number = 0, 1
    for row in rows:
        panels, bottom = _place_panels(row.panels, top + 1, number + 1)
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.is_folded,
            "gridPos": {"h": 1, "w": PAGE_WIDTH, "x": 0, "y": top},
            "panels": panels if row.is_folded else [],
        }
        if not row.is_folded:
            yield from panels
        top, number = bottom, number + 1 + len(panels)


def _place_panels(panels: Sequence[Panel], top: int, number: int) -> tuple[list[Json], int]:
    placed: list[Json] = []
    left, height = 0, 0
    for panel in panels:
        usual_width, own_height = SIZES.get(panel.look, USUAL_SIZE)
        width = panel.width or usual_width
        if left + width > PAGE_WIDTH:
            left, top, height = 0, top + height, 0
        position = {"h": own_height, "w": width, "x": left, "y": top}
        placed.append({"id": number + len(placed), "gridPos": position, **_panel(panel)})
        left, height = left + width, max(height, own_height)
    return placed, top + height


def _panel(panel: Panel) -> Json:
    made: Json = {
        "type": KINDS[panel.look],
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "targets": list(_targets(panel)),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_overrides(panel))},
        "options": _options(panel),
    }
    return {**made, "transformations": list(_transformations(panel))} if panel.look is Look.TABLE else made


def _targets(panel: Panel) -> Iterator[Json]:
    for index, (name, expression) in enumerate(panel.queries.items()):
        target: Json = {"refId": chr(ord("A") + index), "expr": with_matchers(expression)}
        if name and panel.look is not Look.TABLE:
            target["legendFormat"] = name
        if panel.look in FORMATS:
            target["format"] = FORMATS[panel.look]
        yield {**target, "instant": True, "range": False} if panel.look in INSTANT else target


def _options(panel: Panel) -> Json:
    newest = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    match panel.look:
        case Look.NUMBER | Look.NAME:
            text = "name" if panel.look is Look.NAME else "auto"
            return {"reduceOptions": newest, "colorMode": "value", "graphMode": "none", "textMode": text}
        case Look.DIAL:
            return {"reduceOptions": newest, "showThresholdLabels": False, "showThresholdMarkers": True}
        case Look.BARS:
            return {"reduceOptions": newest, "displayMode": "basic", "orientation": "horizontal"}
        case Look.TABLE:
            return {"showHeader": True, "cellHeight": "sm"}
        case Look.HEATMAP:
            colours = {"mode": "scheme", "scheme": "Oranges", "steps": 64}
            return {"calculate": False, "color": colours, "yAxis": {"unit": panel.unit}, "cellGap": 1}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit}
    if panel.words:
        words = {value: {"text": text, "color": colour} for value, text, colour in panel.words}
        defaults["mappings"] = [{"type": "value", "options": words}]
    if panel.look is Look.TABLE:
        return defaults
    defaults |= {"min": 0, "thresholds": _thresholds(panel)}
    if panel.unit == "percentunit" and panel.look in (Look.DIAL, Look.BARS):
        defaults["max"] = 1
    if panel.look in (Look.LINES, Look.STACK):
        defaults |= {"color": {"mode": "palette-classic-by-name"}, "custom": _curve(panel)}
    links = [link for label in _labels_in(panel.queries) for link in _data_links(label, f"${{__field.labels.{label}}}")]
    return {**defaults, "links": links} if links else defaults


def _curve(panel: Panel) -> Json:
    is_stack = panel.look is Look.STACK
    has_limits = panel.warn_from is not None or panel.bad_from is not None
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if is_stack else 5,
        "showPoints": "never",
        "stacking": {"mode": "normal" if is_stack else "none", "group": "A"},
        **({"thresholdsStyle": {"mode": "line"}} if has_limits else {}),
    }


def _thresholds(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    for colour, value in (("yellow", panel.warn_from), ("red", panel.bad_from)):
        if value is not None:
            steps.append({"color": colour, "value": value})
    return {"mode": "absolute", "steps": steps}


def _labels_in(names: Iterable[str]) -> list[str]:
    """Return the labels in names of series that lead somewhere, each once."""
    found = (label for name in names for label in re.findall(r"{{(\w+)}}", name))
    return [label for label in dict.fromkeys(found) if label in LINKS]


def _data_links(label: str, value: str) -> list[Json]:
    return [
        {"title": title, "url": url.format(value) + (CARRIED if url.startswith("/d/") else "")}
        for title, url in LINKS[label]
    ]


def _overrides(panel: Panel) -> Iterator[Json]:
    """Colour states, link the labels in tables, and give columns their units."""
    if panel.look in (Look.LINES, Look.STACK) and any(name in STATE_LABELS for name in panel.queries):
        for colour, names in COLOURS.items():
            matcher = {"id": "byRegexp", "options": f"^({'|'.join(names)})$"}
            yield {
                "matcher": matcher,
                "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
            }
    for label in panel.labels:
        properties: list[Json] = [{"id": "unit", "value": "string"}]
        if label in LINKS:
            properties.append({"id": "links", "value": _data_links(label, "${__value.raw}")})
        yield {"matcher": {"id": "byName", "options": label}, "properties": properties}
    for column, unit in (panel.units or {}).items():
        yield {"matcher": {"id": "byName", "options": column}, "properties": [{"id": "unit", "value": unit}]}


def _transformations(panel: Panel) -> Iterator[Json]:
    """Join the queries of a table by their labels; keep labels and values, in their order, under their names."""
    names = list(panel.queries)
    values = ["Value"] if len(names) == 1 else [f"Value #{chr(ord('A') + index)}" for index in range(len(names))]
    kept = [*panel.labels, *values]
    if len(names) > 1:
        yield {"id": "merge", "options": {}}
    yield {"id": "filterFieldsByName", "options": {"include": {"names": kept}}}
    order = {name: index for index, name in enumerate(kept)}
    renamed = {value: name for value, name in zip(values, names, strict=True) if name}
    yield {"id": "organize", "options": {"indexByName": order, "renameByName": renamed}}
