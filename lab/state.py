# SPDX-License-Identifier: Apache-2.0
"""Remember a running lab in a file, so that another process can command and end it."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.config import LabSettings, Layout
from lab.errors import LabError
from lab.ports import PortBlock
from lab.processes import Daemon, Process

FILE_NAME = "lab.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabState:
    """Hold what must be known to end a lab: where everything is and which processes are its own."""

    layout: Layout
    daemons: tuple[Daemon, ...]


def write_state(layout: Layout, daemons: Iterable[Daemon]) -> None:
    """Write the state file, aside first, so that no reader meets half of it."""
    document = {
        "block": layout.block.number,
        "uses_cgroups": layout.uses_cgroups,
        "cgroup_plugin": layout.cgroup_plugin,
        "settings": asdict(layout.settings),
        "daemons": [asdict(daemon) for daemon in daemons],
    }
    target = layout.folder / FILE_NAME
    aside = target.with_suffix(".new")
    aside.write_text(json.dumps(document, indent=1, default=str), encoding="utf-8")
    aside.replace(target)


def read_state(folder: Path) -> LabState:
    """Read the state file of a lab, or raise LabError when there is no lab in this folder."""
    folder = folder.resolve()
    try:
        document = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LabError(f"no lab runs in {folder}") from error
    settings = document["settings"]
    layout = Layout(
        folder=folder,
        block=PortBlock(number=document["block"]),
        settings=LabSettings(
            node_count=settings["node_count"],
            refuses_cgroups=settings.get("refuses_cgroups", False),
            has_accounting=settings.get("has_accounting", True),
            first_job_id=settings.get("first_job_id"),
            extra_lines=tuple(settings["extra_lines"]),
            extra_files=settings["extra_files"],
        ),
        uses_cgroups=document["uses_cgroups"],
        cgroup_plugin=document.get("cgroup_plugin", "cgroup/v1"),
    )
    return LabState(layout=layout, daemons=tuple(_daemon(entry) for entry in document["daemons"]))


def _daemon(entry: dict[str, Any]) -> Daemon:
    process = entry["process"]
    return Daemon(
        name=entry["name"],
        argv=tuple(entry["argv"]),
        environment=entry["environment"],
        log_file=Path(entry["log_file"]),
        process=None if process is None else Process(**process),
    )
