# SPDX-License-Identifier: Apache-2.0
"""Print the modules without I/O that import-linter's contract "pure" lists, or the unit tests of nothing else.

``python -m scripts.pure files`` prints their files, for coverage. ``python -m scripts.pure tests`` prints the unit
tests that import these modules and no other module of slurmscope, neither themselves nor by a fake or a conftest file.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("slurmscope", "tests")


def pure_modules() -> frozenset[str]:
    """Return the names of the modules without I/O."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return frozenset(next(contract["source_modules"] for contract in contracts if contract["id"] == "pure"))


def pure_files() -> list[str]:
    """Return the paths of the modules without I/O."""
    return [str(_path(module).relative_to(ROOT)) for module in sorted(pure_modules())]


def pure_tests() -> list[str]:
    """Return the unit tests of modules without I/O."""
    modules = pure_modules()
    tests = sorted((ROOT / "tests/unit").rglob("test_*.py"))
    return [str(test.relative_to(ROOT)) for test in tests if _is_pure(test, modules)]


@cache
def imported_modules(file: Path) -> frozenset[str]:
    """Return the modules of slurmscope and of the tests that a file imports."""
    return frozenset(_imports(ast.parse(file.read_bytes())))


def _is_pure(test: Path, modules: frozenset[str]) -> bool:
    """Return whether a test reaches modules without I/O only: itself, by its conftest files, and by fakes."""
    seen: set[Path] = set()
    found: set[str] = set()
    left = {test, *(folder / "conftest.py" for folder in test.parents if "unit" in folder.parts)}
    while left:
        file = left.pop()
        if file in seen or not file.exists():
            continue
        seen.add(file)
        imported = imported_modules(file)
        left |= {_path(module) for module in imported if module.startswith("tests.")}
        found |= {module for module in imported if module.startswith("slurmscope.")}
    return bool(found) and found <= modules


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(PACKAGES))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGES):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield module if _path(module).exists() else node.module


def _path(module: str) -> Path:
    """Return the file of a module, which may not exist."""
    folder = ROOT / "src" if module.startswith("slurmscope") else ROOT
    return folder / f"{module.replace('.', '/')}.py"


if __name__ == "__main__":
    print(",".join(pure_files()) if sys.argv[1:] == ["files"] else " ".join(pure_tests()))
