# SPDX-License-Identifier: Apache-2.0
"""A release is refused, in one sentence, unless the repository is ready for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from scripts.release import ROOT, NotReady, add_vendored, check_repository, write_checksums

CHANGELOG = "# Changelog\n\n## 1.2.3 (2026-01-31)\n\n- Something new.\n\n## 1.2.2\n\n- Something old.\n"


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True, timeout=60)


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository that is ready to be released as 1.2.3."""
    git(tmp_path, "init", "--quiet")
    write(tmp_path, "src/slurmscope/__init__.py", '__version__ = "1.2.3"\n')
    write(tmp_path, "CHANGELOG.md", CHANGELOG)
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "Change something")


def test_ready_repository_is_accepted(repository: Path) -> None:
    check_repository(repository, "1.2.3")


def test_empty_unreleased_section_is_accepted(repository: Path) -> None:
    write(repository, "CHANGELOG.md", CHANGELOG.replace("## 1.2.3", "## Unreleased\n\n## 1.2.3"))
    commit(repository)

    check_repository(repository, "1.2.3")


@pytest.mark.parametrize("version", ["v1.2.3", "1.2", "1.2.3-rc1", "", "1.2.3 "])
def test_text_that_is_no_version_is_refused(repository: Path, version: str) -> None:
    with pytest.raises(NotReady, match="is not a version"):
        check_repository(repository, version)


def test_uncommitted_change_is_refused_by_its_name(repository: Path) -> None:
    write(repository, "forgotten.py", "")

    with pytest.raises(NotReady, match=r"forgotten\.py"):
        check_repository(repository, "1.2.3")


def test_version_that_is_tagged_already_is_refused(repository: Path) -> None:
    git(repository, "tag", "v1.2.3")

    with pytest.raises(NotReady, match=r"v1\.2\.3 exists already"):
        check_repository(repository, "1.2.3")


def test_other_version_in_the_package_is_refused(repository: Path) -> None:
    with pytest.raises(NotReady, match=r"__init__\.py says 1\.2\.3: set __version__ to 1\.3\.0"):
        check_repository(repository, "1.3.0")


@pytest.mark.parametrize(
    ("changelog", "message"),
    [
        (CHANGELOG.replace("1.2.3", "Unreleased"), "no section '## 1.2.3'"),
        (CHANGELOG.replace("- Something new.\n", ""), "no section '## 1.2.3'"),
        (CHANGELOG.replace("1.2.3", "1.2.30"), "no section '## 1.2.3'"),
        ("## Unreleased\n\n- Left over.\n\n" + CHANGELOG, "still has entries under '## Unreleased'"),
    ],
)
def test_changelog_without_this_version_is_refused(repository: Path, changelog: str, message: str) -> None:
    write(repository, "CHANGELOG.md", changelog)
    commit(repository)

    with pytest.raises(NotReady, match=message):
        check_repository(repository, "1.2.3")


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    write(tmp_path, "slurmscope.pyz", "one")
    write(tmp_path, "slurmscope_1.2.3_all.deb", "two")
    write_checksums(tmp_path)

    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    assert ["slurmscope.pyz: OK", "slurmscope_1.2.3_all.deb: OK"] == done.stdout.splitlines()

    write_checksums(tmp_path)  # does not list itself
    assert 2 == len((tmp_path / "SHA256SUMS").read_text(encoding="utf-8").splitlines())


def test_scripts_of_pages_are_listed_with_their_licences(tmp_path: Path) -> None:
    file = tmp_path / "list.cdx.json"
    file.write_text(json.dumps({"components": []}), encoding="utf-8")
    add_vendored(ROOT, file)

    found = json.loads(file.read_text(encoding="utf-8"))["components"]
    texts = (ROOT / "src/slurmscope/portal/static/vendor/VERSIONS.txt").read_text(encoding="utf-8")
    assert [("htmx", "0BSD"), ("uplot", "MIT")] == [(one["name"], one["licenses"][0]["license"]["id"]) for one in found]
    assert all(one["version"] in texts for one in found)
