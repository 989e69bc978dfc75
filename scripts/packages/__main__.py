# SPDX-License-Identifier: Apache-2.0
"""Build packages of slurmscope into ``dist``.

    make packages
    python -m scripts.packages pyz --python python3.11 --python 'chroot /debian-13 python3'

Needs the network for packages that pip downloads, and nothing else.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from scripts.packages.contents import NODE_PACKAGES, ROOT, install_packages, own_modules
from scripts.packages.deb import build_deb
from scripts.packages.pyz import build_pyz
from scripts.packages.roles import common_package, role_packages
from scripts.packages.rpm import build_rpm
from slurmscope import __version__

RELEASES = range(11, 20)
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
KINDS = {"pyz": "", "deb": "dpkg-deb", "rpm": "rpmbuild"}
"""Kinds of packages, with the program that builds them."""
PORTAL_EXTRAS = ("auth", "rest", "reports", "portal", "mariadb", "postgresql")
OF_NODES = ("click", "pynvml", "nvidia_ml_py")


def main(arguments: list[str] | None = None) -> int:
    """Build what was asked for, or everything that this machine has programs for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} [all]")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the packages [dist]")
    parser.add_argument("--python", action="append", help="compile the pyz for this Python [all python3.N on the PATH]")
    parser.add_argument(
        "--portal-python", default=RUNNING, help=f"release of Python of the portal's package [{RUNNING}]"
    )
    given = parser.parse_args(arguments)
    kinds = given.kinds or [kind for kind, program in KINDS.items() if not program or shutil.which(program)]
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"unknown kind: {min(unknown)}")
    given.output.mkdir(parents=True, exist_ok=True)
    try:
        for line in build(kinds, given.output.resolve(), given.python or found_interpreters(), given.portal_python):
            print(line)
    except subprocess.CalledProcessError as error:
        print(f"packages: {error}", (error.stderr or b"").decode(errors="replace"), file=sys.stderr)
        return 1
    return 0


def build(kinds: list[str], output: Path, interpreters: list[str], portal_python: str) -> Iterator[str]:
    """Build packages of these kinds, and yield a line about each."""
    with tempfile.TemporaryDirectory() as folder:
        modules = {**own_modules(), **install_packages(Path(folder), *NODE_PACKAGES)}
    if "pyz" in kinds:
        releases = build_pyz(output / "slurmscope.pyz", modules, interpreters)
        yield f"{output / 'slurmscope.pyz'}: compiled for Python {', '.join(releases)}"
    if {"deb", "rpm"}.isdisjoint(kinds):
        return
    packages = (common_package(modules, __version__), *role_packages(portal_libraries(portal_python), portal_python))
    for kind, make in (("deb", build_deb), ("rpm", build_rpm)):
        for package in packages if kind in kinds else ():
            yield str(make(package, __version__, output))


def portal_libraries(python: str) -> dict[str, bytes]:
    """Return what the portal imports beyond the packages of nodes, as wheels for one release of Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    requirements = [line for extra in PORTAL_EXTRAS for line in project[extra] if not line.startswith("slurmscope[")]
    options = ("--only-binary=:all:", "--python-version", python, "--implementation", "cp")
    with tempfile.TemporaryDirectory() as folder:
        files = install_packages(Path(folder), *requirements, options=options)
    return {place: content for place, content in files.items() if not place.lower().startswith(OF_NODES)}


def found_interpreters() -> list[str]:
    """Return the interpreters on the PATH that slurmscope runs with and that start, as not every shim does."""
    paths = [path for minor in RELEASES if (path := shutil.which(f"python3.{minor}"))]
    runs = [
        path for path in paths if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
    ]
    return runs or [sys.executable]


if __name__ == "__main__":
    sys.exit(main())
