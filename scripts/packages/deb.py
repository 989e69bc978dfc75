# SPDX-License-Identifier: Apache-2.0
"""Build a deb with dpkg-deb: the same bytes for the same files."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from scripts.packages.roles import Package
from scripts.packages.scriptlets import debian

EPOCH_SECONDS = 315532800
"""1980, as in archives; dpkg-deb sets younger files to it."""


def build_deb(package: Package, version: str, folder: Path) -> Path:
    """Write the deb of a package to a folder, and return its path."""
    architecture = _architecture() if package.python else "all"
    target = folder / f"{package.name}_{deb_version(version)}{_suffix(package)}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        root.chmod(0o755)
        write_tree(package, root)
        _write_control(package, version, architecture, root)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH_SECONDS)}
        argv = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--build", str(root), str(target)]
        subprocess.run(argv, env=environment, check=True, capture_output=True)
    return target


def deb_version(version: str) -> str:
    """Return a version that sorts before its release if it is a candidate: 1.2.3~rc1."""
    return "".join(f"~{character}" if character in "abr" else character for character in version)


def write_tree(package: Package, root: Path) -> None:
    """Write the files of a package below a folder."""
    for place in package.folders:
        (root / place).mkdir(parents=True, exist_ok=True)
    for place, file in package.files.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)
    for path in root.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)


def _write_control(package: Package, version: str, architecture: str, root: Path) -> None:
    control = root / "DEBIAN"
    control.mkdir(mode=0o755)
    size = sum(len(file.content) for file in package.files.values()) // 1024 + 1
    sums = {place: hashlib.md5(file.content, usedforsecurity=False) for place, file in sorted(package.files.items())}
    lines = "".join(f"{checksum.hexdigest()}  {place}\n" for place, checksum in sums.items())
    (control / "md5sums").write_text(lines, encoding="utf-8")
    (control / "control").write_text(
        f"Package: {package.name}\nVersion: {deb_version(version)}{_suffix(package)}\nArchitecture: {architecture}\n"
        f"Maintainer: The slurmscope authors\nInstalled-Size: {size}\n{_relations(package, version)}"
        f"Section: admin\nPriority: optional\n"
        f"Description: {package.summary}\n {package.text}\n",
        encoding="utf-8",
    )
    if package.configuration:
        (control / "conffiles").write_text("".join(f"/{path}\n" for path in package.configuration), encoding="utf-8")
    for name, text in debian(package).items():
        (control / name).write_text(text, encoding="utf-8")
        (control / name).chmod(0o755)


def _relations(package: Package, version: str) -> str:
    if package.is_common:
        return "Depends: python3 (>= 3.11), passwd\nRecommends: python3-bcrypt, python3-yaml\n"
    needed = [f"slurmscope (= {deb_version(version)})"]
    if package.python:
        major, minor = package.python.split(".")
        needed += [f"python3 (>= {package.python})", f"python3 (<< {major}.{int(minor) + 1})"]
    return f"Depends: {', '.join(needed)}\n"


def _suffix(package: Package) -> str:
    return f"+py{package.python.replace('.', '')}" if package.python else ""


def _architecture() -> str:
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
