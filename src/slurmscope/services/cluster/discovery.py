# SPDX-License-Identifier: Apache-2.0
"""Offer the nodes of the cluster to Prometheus as targets: by HTTP, and in a file.

The last good list is offered for as long as Slurm does not answer: targets must not vanish with slurmctld.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from slurmscope.analysis.node_targets import HIGHEST_PORT, Selection, UnknownFilter, make_targets, parse_selection
from slurmscope.config import parse_path
from slurmscope.errors import ConfigError, SourceError
from slurmscope.model.discovery import DiscoveredNode, DiscoveredNodes
from slurmscope.outputs.http.app import Route
from slurmscope.outputs.http.request import HttpRequest
from slurmscope.outputs.http.response import Response, text_response
from slurmscope.outputs.textfile import remove_stale_parts, write_textfile
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.runtime.periodic import run_periodically
from slurmscope.settings import parse_text, setting
from slurmscope.sources.slurm.commands import SlurmCommands, random_separator
from slurmscope.sources.slurm.sinfo_discovery import arguments, parse_discovery
from slurmscope.units import parse_positive_seconds

PATH = "/sd/nodes"
AGENT_PORT = 9798
WAIT_SECONDS = 10.0
"""How long a request waits for sinfo; then it gets the last good list."""

_HEADERS = (("Content-Type", "application/json"), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


def parse_filter(given: object) -> str:
    """Parse the filter of the file, which is written as in the address."""
    text = parse_text(given)
    parse_selection(parse_qsl(text, keep_blank_values=True), AGENT_PORT)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    """The nodes of the cluster as targets for Prometheus, on the path /sd/nodes and in a file."""

    port: int = setting(AGENT_PORT, help="Port of the targets, unless the request has another one.", metavar="PORT")
    file: Path | None = setting(
        None,
        help="File with the targets, for file_sd_configs of Prometheus; its name ends in .json.",
        parse=parse_path,
        metavar="FILE",
    )
    file_filter: str = setting(
        "",
        help="Filters for the file, as in the address: partition=gpu&port=9100.",
        parse=parse_filter,
        metavar="FILTER",
    )
    file_interval: float = setting(
        60.0, help="Interval between updates of the file.", parse=parse_positive_seconds, metavar="DURATION"
    )


def read_nodes(commands: SlurmCommands) -> DiscoveredNodes:
    """Read all nodes."""
    separator = random_separator()
    return parse_discovery(commands.run("sinfo", arguments(separator)), separator)


class Discovery:
    """Answer the path, and keep the file up to date."""

    def __init__(self, settings: DiscoverySettings, reading: SharedReading) -> None:
        """Check the settings; raise ConfigError if one cannot be used."""
        if not 1 <= settings.port <= HIGHEST_PORT:
            raise ConfigError(f"sd.port is {settings.port}, not a port from 1 to {HIGHEST_PORT}")
        if settings.file is not None and settings.file.suffix != ".json":
            raise ConfigError(
                f"sd.file is {str(settings.file)!a}; its name must end in .json, which Prometheus requires"
            )
        self._settings = settings
        self._reading = reading
        link_text = "Nodes of the cluster, for http_sd_configs of Prometheus."
        self.routes: Mapping[str, Route] = {
            PATH: Route(answer=self.answer, find_upload=lambda _: None, methods=("GET", "HEAD"), link_text=link_text)
        }

    def answer(self, request: HttpRequest) -> Response:
        """Answer a request for targets."""
        try:
            selection = parse_selection(request.query, self._settings.port)
        except UnknownFilter as problem:
            return text_response(400, str(problem))
        try:
            return Response(headers=_HEADERS, body=self._targets(selection))
        except SourceError as error:
            return text_response(503, f"The nodes are not known: {error}.", ("Retry-After", "10"))

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the file up to date, if there is one."""
        path = self._settings.file
        if path is None:
            yield
            return
        query = parse_qsl(self._settings.file_filter, keep_blank_values=True)
        selection = parse_selection(query, self._settings.port)
        remove_stale_parts(path)

        def write() -> None:
            write_textfile(path, [self._targets(selection)])

        with run_periodically("file_sd", self._settings.file_interval, write):
            yield

    def _targets(self, selection: Selection) -> bytes:
        return json.dumps(make_targets(self._nodes(), selection), indent=1).encode() + b"\n"

    def _nodes(self) -> tuple[DiscoveredNode, ...]:
        self._reading.request()
        snapshot = self._reading.wait(time.monotonic() + WAIT_SECONDS)
        if not isinstance(snapshot.value, DiscoveredNodes):
            raise SourceError(snapshot.error or "sinfo has not answered yet")
        return snapshot.value.nodes
