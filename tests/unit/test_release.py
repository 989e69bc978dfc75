# SPDX-License-Identifier: Apache-2.0
"""A release is refused, in one sentence, unless the repository is ready for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.release import NotReady, check_repository

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
