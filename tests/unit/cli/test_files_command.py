# SPDX-License-Identifier: Apache-2.0
"""Tests of ``slurmscope files``: what is there differs from what ships, or names are unknown."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from scripts.packages.contents import shared_files
from slurmscope.cli import slurmscope
from slurmscope.core.own_files import shipped_files

DEPLOY = Path(__file__).parents[3] / "deploy"


def files(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(slurmscope, ["files", *map(str, arguments)])
    return done.exit_code, done.output or str(done.exception)


def test_wheel_has_the_files_that_a_clone_lists() -> None:
    assert list(shared_files()) == list(shipped_files())


def test_named_file_is_printed() -> None:
    assert (0, (DEPLOY / "node.toml").read_text(encoding="utf-8")) == files("node.toml")


def test_unknown_name_is_refused() -> None:
    assert "there is no file 'nodes.toml': slurmscope files lists them" in files("nodes.toml")[1]


def test_file_that_differs_is_kept(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("own\n", encoding="utf-8")

    assert f"{tmp_path / 'web.yml'} exists and differs; replace with --force" in files("--copy", tmp_path)[1]
    assert ["web.yml"] == [path.name for path in tmp_path.iterdir()]


def test_file_that_differs_is_replaced_on_request(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("own\n", encoding="utf-8")

    assert 0 == files("web.yml", "--copy", tmp_path, "--force")[0]
    assert (DEPLOY / "web.yml").read_bytes() == (tmp_path / "web.yml").read_bytes()


def test_second_copy_changes_nothing(tmp_path: Path) -> None:
    assert [0, 0] == [files("--copy", tmp_path)[0] for _ in range(2)]


def test_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert (
        f"cannot write to {tmp_path / 'file' / 'below'}: Not a directory"
        in files("--copy", tmp_path / "file" / "below")[1]
    )
