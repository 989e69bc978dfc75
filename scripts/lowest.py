# SPDX-License-Identifier: Apache-2.0
"""Test with the lowest releases of the packages that pyproject.toml allows.

``python3 -m scripts.lowest [PYTEST_ARGUMENT]…`` installs them into .venv-lowest and runs the unit tests of what uses
them: the web pages, the archive, the outputs and the commands.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-lowest"
TOOLS = (
    "aiosmtpd", "httpx", "hypothesis", "prometheus-client", "psutil", "pypdf", "pytest", "pytest-randomly",
    "pytest-xdist", "python-hostlist", "schemathesis",
)  # fmt: skip
"""What these tests import, in its newest release."""
TESTS = ("tests/unit/archive", "tests/unit/cli", "tests/unit/exporter", "tests/unit/portal", "tests/unit/reports")

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(?:\[[a-z,]+\])?>=(?P<version>[0-9][0-9.]*)")


def lowest_releases(project: Mapping[str, object]) -> Iterator[str]:
    """Yield the lowest allowed release of each package that slurmscope itself needs."""
    table = project["project"]
    assert isinstance(table, dict)
    extras = [wanted for name, wanted in table["optional-dependencies"].items() if name != "dev"]
    for requirement in (*table["dependencies"], *(each for wanted in extras for each in wanted)):
        if requirement.startswith("slurmscope["):
            continue
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise SystemExit(f"lowest: {requirement!r} names no lowest release; write NAME>=VERSION")
        yield f"{match['name']}=={match['version']}"


def main(arguments: Sequence[str]) -> int:
    """Install and test."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    releases = sorted(set(lowest_releases(project)))
    print("lowest:", " ".join(releases), flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
    constraints = FOLDER / "constraints.txt"
    constraints.write_text("\n".join(releases) + "\n", encoding="utf-8")
    extras = ",".join(name for name in project["project"]["optional-dependencies"] if name != "dev")
    pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(constraints), "--editable", f"{ROOT}[{extras}]", *TOOLS], check=True)
    pytest = [str(FOLDER / "bin" / "pytest"), "-q", "-n", "2", *(arguments or TESTS)]
    return subprocess.run(pytest, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
