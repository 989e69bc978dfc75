# SPDX-License-Identifier: Apache-2.0
"""Pages about replaced tools: each has its parts, and its commands are understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from slurmscope.services.migrate.systems import SYSTEMS
from tests.fakes.command_line import run_here

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
