# SPDX-License-Identifier: Apache-2.0
"""Collect what goes into packages: our modules, the pure Python packages of nodes, and the files to deploy."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NODE_PACKAGES = ("click", "nvidia-ml-py")
"""Pure Python: one file of each package works with every release of Python and on every architecture."""


def own_modules() -> dict[str, bytes]:
    """Return the modules and data of slurmscope by path; what is not committed is part of it, caches are not."""
    source = ROOT / "src"
    return _files_below(source / "slurmscope", source)


def shared_files(root: Path = ROOT) -> dict[str, bytes]:
    """Return the files to deploy by path in ``share``, as pyproject.toml lists them for the wheel."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    declared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    files = {}
    for place, target in declared.items():
        name = target.removeprefix("share/slurmscope/")
        if (root / place).is_dir():
            below = _files_below(root / place, root / place)
            files.update(
                {f"{name}/{path}": content for path, content in below.items() if not path.startswith("tests/")}
            )
        else:
            files[name] = (root / place).read_bytes()
    return dict(sorted(files.items()))


def install_packages(folder: Path, *requirements: str, options: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Return the files of packages that pip installs, without what depends on the place or on this machine."""
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*argv, "--target", str(folder), *options, *requirements], check=True)
    shutil.rmtree(folder / "bin", ignore_errors=True)
    return {
        path: content
        for path, content in _files_below(folder, folder).items()
        if path != "example.py" and not _is_superfluous(Path(path))
    }


def _is_superfluous(path: Path) -> bool:
    """Return whether nothing needs a file at run time: books of pip, hidden folders, source of compiled modules."""
    is_of_pip = path.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
    return is_of_pip or path.suffix == ".c" or any(part.startswith(".") for part in path.parts)


def _files_below(folder: Path, base: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(base).as_posix(): path.read_bytes() for path in sorted(files)}
