# SPDX-License-Identifier: Apache-2.0
"""Pages about replaced tools: each has its parts, and its commands are understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from slurmscope.jobs.render.compat import render_seed_usage
from slurmscope.migrate.check import SYSTEMS
from slurmscope.portal.compat import router
from tests.fakes.command_line import run_here
from tests.fakes.reports import make_report

FOLDER = Path(__file__).parents[2] / "docs" / "migrate"
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
LINES = [
    line
    for page in sorted(FOLDER.glob("*.md"))
    for block in BLOCK.findall(page.read_text(encoding="utf-8"))
    for line in block.splitlines()
]


def test_every_replaced_tool_has_a_page_that_the_overview_links() -> None:
    overview = (FOLDER / "README.md").read_text(encoding="utf-8")

    assert {system.page for system in SYSTEMS} | {"README"} == {page.stem for page in FOLDER.glob("*.md")}
    assert [] == [system.page for system in SYSTEMS if f"]({system.page}.md)" not in overview]


@pytest.mark.parametrize("page", [system.page for system in SYSTEMS])
def test_page_has_metrics_and_a_relabelling(page: str) -> None:
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")

    assert f"<!-- generated: {page}-metrics -->" in text
    assert re.search(r"\n## Relabelling\n.*?```yaml\n", text, re.DOTALL)


@pytest.mark.parametrize("line", [line for line in LINES if re.match(r"slurmscope (cluster|node) ", line)])
def test_documented_flags_are_understood(line: str) -> None:
    role, *flags = shlex.split(line.rstrip("&"))[1:]
    done = run_here("config", "check", role, *flags)

    assert 0 == done.returncode, done.stderr


def first_cells(page: str, head: str) -> list[str]:
    """Return the code of the first column of the table with this head."""
    rows = (FOLDER / f"{page}.md").read_text(encoding="utf-8").split(head)[1].split("\n\n")[0]
    return [
        cell for row in rows.splitlines() for cell in re.findall(r"`([^`]+)`", row.split("|")[1] if "|" in row else "")
    ]


def test_documented_keys_of_the_older_json_exist() -> None:
    usage = render_seed_usage(make_report())
    documented = first_cells("jobs-exporter", "| key of `/api/v1/jobs/ID/usage` | difference |")
    # Several keys of one table row share the name before the dot.
    tops = {key.partition(".")[0] for key in documented} - {"alloc_cpu", "alloc_mem", "gpu"}

    assert set(usage) == tops
    allocated = usage["alloc_tres"]
    assert isinstance(allocated, dict)
    assert {"billing", "alloc_cpu", "alloc_mem", "alloc_nodes"} == set(allocated)
    assert {"alloc_tres.billing", "alloc_cpu", "alloc_mem", "alloc_tres.alloc_nodes"} <= set(documented)


def test_documented_routes_of_the_older_application_exist() -> None:
    known = {re.sub(r"\{.*?\}", "X", route.path) for route in router.routes if isinstance(route, APIRoute)}
    documented = first_cells("jobs-exporter", "## Routes of the web application\n\n| older | here |")

    assert {"/"} == {re.sub("ID|METRIC|NAME", "X", path) for path in documented} - known
