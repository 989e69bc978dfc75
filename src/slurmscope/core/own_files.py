# SPDX-License-Identifier: Apache-2.0
"""Find the files of this installation: a virtual environment, a package, an archive (slurmscope.pyz) or a clone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import slurmscope

_RUN_MODULE = (
    "import sys; root, name = sys.argv[1:3]; del sys.argv[1:3]; root in sys.path or sys.path.insert(0, root); "
    "import runpy; runpy.run_module(name, run_name='__main__')"
)
_NOT_SHIPPED = {"__pycache__", "packages", "tests"}
"""Folders of ``deploy`` in a clone; neither are the Python modules that make dashboards."""


def module_command(name: str) -> tuple[str, ...]:
    """Return the command line that runs one of our modules in another process of the same interpreter.

    ``python -m`` would not find it in an archive or in the folder of a package. -P keeps the current folder out of
    the search for modules: it is not ours.
    """
    return (sys.executable, "-P", "-c", _RUN_MODULE, code_root(), name)


def code_root() -> str:
    """Return the entry of ``sys.path`` from which slurmscope was imported, which may be inside an archive."""
    return str(Path(slurmscope.__file__).absolute().parents[1])


class Shipped(Protocol):
    """What a ``Path`` and a ``zipfile.Path`` have in common."""

    @property
    def name(self) -> str: ...
    def is_dir(self) -> bool: ...
    def iterdir(self) -> Iterator[Shipped]: ...
    def read_bytes(self) -> bytes: ...


def shipped_files() -> dict[str, Shipped]:
    """Return the units, examples, rules and scripts that ship with slurmscope, by name relative to their folder."""
    root = _shipped_root()
    return dict(sorted(_files_below(root, ""))) if root is not None else {}


def _shipped_root() -> Shipped | None:
    archive = getattr(slurmscope.__loader__, "archive", None)
    if archive is not None:
        import zipfile

        return zipfile.Path(archive, "share/")
    clone = Path(slurmscope.__file__).absolute().parents[2] / "deploy"
    installed = Path(sys.prefix) / "share" / "slurmscope"
    return next((folder for folder in (clone, installed) if folder.is_dir()), None)


def _files_below(folder: Shipped, prefix: str) -> Iterator[tuple[str, Shipped]]:
    for entry in folder.iterdir():
        if entry.name in _NOT_SHIPPED or entry.name.endswith(".py"):
            continue
        if entry.is_dir():
            yield from _files_below(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry
