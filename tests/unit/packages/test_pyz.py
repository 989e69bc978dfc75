# SPDX-License-Identifier: Apache-2.0
"""slurmscope.pyz runs from one file: compiled modules, click and the files to deploy, the same bytes each time."""

from __future__ import annotations

import ast
import os
import re
import site
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.packages.contents import own_modules, shared_files
from scripts.packages.pyz import START, build_pyz, compile_modules

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
OLD = "import sys; sys.version_info = (3, 9, 18); sys.argv = sys.argv[1:]; exec(open({start!r}).read())"


def library(name: str) -> dict[str, bytes]:
    """Return an installed package, which pip would download."""
    (folder,) = (Path(place) for place in site.getsitepackages() if (Path(place) / name).exists())
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted((folder / name).rglob("*.py"))}


def run(*argv: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    return subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        input=given,
        env=environment,
        timeout=120,
        check=False,
    )


# Its modules are of no use, but they are in the archive.
LATER = """#!/bin/sh
exec {python} -I -S -c "import sys; sys.version_info = (3, 99); exec(sys.argv[1])" "$6"
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive for the Python of the tests and a later one, away from the clone."""
    target = tmp_path_factory.mktemp("pyz") / "slurmscope.pyz"
    later = target.with_name("later")
    later.write_text(LATER.format(python=sys.executable), encoding="utf-8")
    later.chmod(0o755)
    releases = build_pyz(target, {**own_modules(), **library("click")}, [str(later), sys.executable])
    assert [RUNNING, "3.99"] == releases
    return target


def test_archive_is_executable(archive: Path) -> None:
    assert 0o755 == stat.S_IMODE(archive.stat().st_mode)
    assert archive.read_bytes().startswith(b"#!/usr/bin/python3 -I\n")


def test_agent_runs_with_the_standard_library_and_the_archive_only(archive: Path) -> None:
    done = run(sys.executable, "-I", "-S", archive, "node", "--once")

    assert 'slurmscope_build_info{version="' in done.stdout, done.stderr


def test_no_module_is_compiled_at_start(archive: Path) -> None:
    done = run(sys.executable, "-I", "-S", "-v", archive, "--version")
    origins = re.findall(r"(?m)^import '(?:slurmscope|click)[^']*' # <zipimporter object \"(.*)\">", done.stderr)
    with zipfile.ZipFile(archive) as opened:
        endings = {Path(name).suffix for name in opened.namelist() if name.startswith(f"{RUNNING}/")}

    assert len(origins) > 10
    assert {".pyc"} == endings
    assert {f"{archive}/{RUNNING}"} == {origin[: len(f"{archive}/{RUNNING}")] for origin in origins}


def test_python_for_which_nothing_is_compiled_reads_the_sources(archive: Path) -> None:
    other = archive.with_name("other.pyz")
    build_pyz(other, {**own_modules(), **library("click")}, [])

    assert (
        run(sys.executable, "-I", archive, "--version").stdout == run(sys.executable, "-I", other, "--version").stdout
    )


def test_archive_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    modules = {name: content for name, content in own_modules().items() if "/core/" in name}
    first, second = tmp_path / "first.pyz", tmp_path / "second.pyz"
    for target in (first, second):
        build_pyz(target, modules, [sys.executable])

    assert first.read_bytes() == second.read_bytes()


def test_compiled_modules_are_those_of_the_interpreter() -> None:
    compiled = compile_modules(sys.executable, {"one.py": b"NAMES = {'a', 'b'}\n", "page.html": b""})

    assert [f"{RUNNING}/one.pyc"] == list(compiled)


def test_files_to_deploy_are_copied(archive: Path, tmp_path: Path) -> None:
    done = run(sys.executable, "-I", archive, "files", "--copy", tmp_path)
    copied = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*") if path.is_file()}

    assert 0 == done.returncode, done.stderr
    assert shared_files() == {name: path.read_bytes() for name, path in sorted(copied.items())}
    assert os.access(copied["prolog-slurmscope"], os.X_OK)
    assert not os.access(copied["node.toml"], os.X_OK)


def test_module_of_the_archive_runs_in_another_process(archive: Path) -> None:
    start = (
        "import subprocess, sys; sys.path.insert(0, sys.argv[1]); "
        "from slurmscope.core.own_files import module_command; "
        "sys.exit(subprocess.run([*module_command('slurmscope'), '--version']).returncode)"
    )
    done = run(sys.executable, "-I", "-S", "-c", start, f"{archive}/{RUNNING}")

    assert (0, "") == (done.returncode, done.stderr)


def test_start_can_be_read_by_any_python_3() -> None:
    ast.parse(START.read_text(encoding="utf-8"), feature_version=(3, 4))


def test_older_python_is_replaced_or_refused_in_one_sentence(archive: Path) -> None:
    start = archive.with_name("start.py")
    start.write_text(START.read_text(encoding="utf-8"), encoding="utf-8")
    done = run(sys.executable, "-I", "-c", OLD.format(start=str(start)), archive, "--version")
    newer = [path for minor in range(11, 20) if (path := Path(f"/usr/bin/python3.{minor}")).exists()]

    if newer:
        assert (0, "slurmscope") == (done.returncode, done.stdout.split(",")[0])
    else:
        assert "slurmscope: Python 3.11 or later is needed, and this is 3.9: " == done.stderr[:63]
