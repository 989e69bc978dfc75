# SPDX-License-Identifier: Apache-2.0
"""Describe the packages: which files each has, what it needs, and what its scripts do; deb and rpm are made of this."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field

from scripts.packages.contents import ROOT, shared_files
from scripts.packages.manual import completions, manual_pages
from scripts.packages.pyz import START

FOLDER = "usr/lib/slurmscope"
UNITS = "usr/lib/systemd/system"


@dataclass(frozen=True, slots=True)
class File:
    """The content of one file of a package."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package of a role; ``configuration`` are files that the administrator edits."""

    name: str
    summary: str
    text: str
    files: Mapping[str, File]
    configuration: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    """Configuration that only root and the service may read."""
    python: str = ""
    """The only release of Python that compiled modules inside are for, such as 3.11."""
    folders: tuple[str, ...] = field(default=("etc/slurmscope",))

    @property
    def is_common(self) -> bool:
        return self.name == "slurmscope"


def common_package(modules: Mapping[str, bytes], version: str) -> Package:
    """Return the package that all others need: every module, commands, manual pages, completion, files to deploy."""
    start = START.read_text(encoding="utf-8").replace("@FOLDER@", f"/{FOLDER}").replace("@COMPILED@", "")
    files = {"usr/bin/slurmscope": File(start.encode(), 0o755)}
    files |= {f"{FOLDER}/{name}": File(content) for name, content in modules.items()}
    for name, content in _deployed().items():
        files[f"usr/share/slurmscope/{name}"] = File(content, 0o755 if content.startswith(b"#!") else 0o644)
    pages = {
        f"man/man1/{name}.gz": gzip.compress(text.encode(), mtime=0) for name, text in manual_pages(version).items()
    }
    scripts = {place: text.encode() for place, text in completions().items()}
    files |= {f"usr/share/{name}": File(content) for name, content in {**pages, **scripts}.items()}
    files |= {
        "usr/share/doc/slurmscope/copyright": File((ROOT / "LICENSE").read_bytes()),
        "usr/share/doc/slurmscope/changelog.gz": File(gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0)),
    }
    text = "Commands, manual pages and files to deploy. The packages of the roles have their units and configuration."
    return Package(name="slurmscope", summary="monitoring of Slurm clusters and their jobs", text=text, files=files)


def role_packages(libraries: Mapping[str, bytes], python: str) -> tuple[Package, ...]:
    """Return the packages of the roles; ``libraries`` are what the portal imports, for one release of Python."""
    return (
        _role("node", "node agent of slurmscope", "Exports what every job on a compute node uses, for Prometheus."),
        _role("cluster", "cluster exporter of slurmscope", "Exports jobs, nodes and the scheduler, for Prometheus."),
        _portal(libraries, python),
    )


def _role(role: str, summary: str, text: str) -> Package:
    return Package(
        name=f"slurmscope-{role}",
        summary=summary,
        text=text,
        files=_units(f"slurmscope-{role}.service") | _configuration(f"{role}.toml"),
        configuration=(f"etc/slurmscope/{role}.toml",),
        units=(f"slurmscope-{role}.service",),
    )


def _portal(libraries: Mapping[str, bytes], python: str) -> Package:
    units = ("slurmscope-portal.service", "slurmscope-digest.service", "slurmscope-digest.timer")
    return Package(
        name="slurmscope-portal",
        summary="web portal and job reports of slurmscope",
        text=f"Portal, reports and mails, with the Python packages they need, built for Python {python}.",
        files={
            **_units(*units),
            **_configuration("portal.toml", "mail.toml"),
            **{f"{FOLDER}/{name}": File(content) for name, content in libraries.items()},
        },
        configuration=("etc/slurmscope/portal.toml", "etc/slurmscope/mail.toml"),
        units=(units[0], units[2]),
        private=("etc/slurmscope/portal.toml",),
        python=python,
    )


def _units(*names: str) -> dict[str, File]:
    deployed = _deployed()
    return {f"{UNITS}/{name}": File(deployed[name]) for name in names}


def _configuration(*names: str) -> dict[str, File]:
    deployed = _deployed()
    return {f"etc/slurmscope/{name}": File(deployed[name]) for name in names}


def _deployed() -> dict[str, bytes]:
    """Return the files to deploy, with the places of packages instead of those of a virtual environment."""
    places = {b"/opt/slurmscope/bin/": b"/usr/bin/", b"/opt/slurmscope/share/": b"/usr/share/"}
    files = shared_files()
    for old, new in places.items():
        files = {name: content.replace(old, new) for name, content in files.items()}
    return files
