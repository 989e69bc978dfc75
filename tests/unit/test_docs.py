# SPDX-License-Identifier: Apache-2.0
"""The documentation names only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.resubmission_kinds import GROUPS, KINDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")})
TEST = re.compile(r"`((?:unit|e2e|browser|bench)/[\w/]+\.py)(?:::(\w+))?`")
PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "slurmscope").glob("*/__init__.py"))
MODULE = re.compile(rf"`((?:{'|'.join(PACKAGES)})/[\w/]+)`")
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#[^)]*)?\)")


def test_every_fault_names_a_test_that_exists() -> None:
    named = TEST.findall((ROOT / "docs" / "faults.md").read_text(encoding="utf-8"))

    assert len(named) > 20
    missing = [
        f"{file}::{name}" for file, name in named if not (path := _place_of(file)).exists() or not _has_test(path, name)
    ]
    assert [] == missing


def _place_of(file: str) -> Path:
    return ROOT / file if file.startswith("bench/") else ROOT / "tests" / file


def _has_test(path: Path, name: str) -> bool:
    return not name or re.search(rf"\bdef {name}\(", path.read_text(encoding="utf-8")) is not None


def test_table_of_resubmitted_jobs_counts_the_kinds_that_are_tried() -> None:
    text = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| kinds of jobs about |")
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (\d+) \|", table.partition("\n\n")[0], re.MULTILINE))
    counted = {group: len(kinds) for group, kinds in GROUPS.items()}

    assert counted | {"all": len(KINDS)} == {group: int(count) for group, count in rows.items()}
    assert f"\n{len(KINDS)} [kinds of jobs]" in text


def test_flows_of_the_architecture_name_modules_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(MODULE.findall(text))

    assert len(named) > 80
    package = ROOT / "src" / "slurmscope"
    assert [] == [
        name for name in sorted(named) if not (package / f"{name}.py").exists() and not (package / name).is_dir()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))

    assert [] == [link for link in links if not (page.parent / link).exists()]
