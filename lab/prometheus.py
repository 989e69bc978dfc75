# SPDX-License-Identifier: Apache-2.0
"""Run Prometheus and its companions on a free loopback port, for as long as a test needs them."""

import contextlib
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.ports import free_port
from lab.processes import Daemon
from lab.requirements import SEARCH_PATH, find_program
from lab.supervisor import Supervisor

ANSWER_SECONDS = 60.0
BLOCKS_SECONDS = 120.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
# Loopback never goes through the proxy that the environment may name.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Hold one series of an instant query."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Hold what Prometheus thinks of one scrape target."""

    url: str
    health: str
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Reach one running server."""

    url: str
    pid: int
    opener: urllib.request.OpenerDirector = _OPENER
    """How to reach it, where it wants a certificate or a password."""

    def get(self, path: str, **parameters: str) -> bytes:
        """Fetch a page; raise LabError with the server's words when it refuses."""
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        try:
            with self.opener.open(f"{self.url}{path}{query}", timeout=ANSWER_SECONDS) as answer:
                body: bytes = answer.read(MAX_ANSWER_BYTES)
                return body
        except urllib.error.HTTPError as error:
            with error:
                words = error.read(2000).decode(errors="replace")
            raise LabError(f"{self.url}{path} answered {error.code}: {words}") from error

    def post(self, path: str, body: bytes) -> None:
        """Send a body, such as samples to import."""
        with self.opener.open(urllib.request.Request(f"{self.url}{path}", data=body), timeout=ANSWER_SECONDS) as answer:
            answer.read(MAX_ANSWER_BYTES)

    def query(self, expression: str) -> list[Sample]:
        """Evaluate an expression now, on Prometheus or VictoriaMetrics."""
        results = self._data("/api/v1/query", query=expression)["result"]
        return [Sample(labels=entry["metric"], value=float(entry["value"][1])) for entry in results]

    def targets(self) -> list[Target]:
        """List the active scrape targets of Prometheus."""
        targets = self._data("/api/v1/targets", state="active")["activeTargets"]
        return [
            Target(url=entry["scrapeUrl"], health=entry["health"], last_error=entry["lastError"]) for entry in targets
        ]

    def _data(self, path: str, **parameters: str) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.get(path, **parameters))["data"]
        return data


@contextlib.contextmanager
def run_prometheus(
    folder: Path,
    config_text: str,
    *flags: str,
    host: str = "127.0.0.1",
    port: int | None = None,
    opener: urllib.request.OpenerDirector = _OPENER,
) -> Iterator[Server]:
    """Run a Prometheus with this configuration and further flags; its files go into the folder.

    Blocks that ``create_blocks`` made in its folder ``data`` are its past. With an opener of its own it serves TLS.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "prometheus.yml"
    config.write_text(config_text, encoding="utf-8")
    port = port or free_port()
    arguments = (
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={host}:{port}",
        "--log.level=warn",
        *flags,
    )
    url = f"{'http' if opener is _OPENER else 'https'}://{host}:{port}"
    log_file = folder / "prometheus.log"
    with _serve("prometheus", arguments, url, ready="/-/ready", log_file=log_file, opener=opener) as server:
        yield server


def create_blocks(folder: Path, openmetrics_text: str) -> None:
    """Give a Prometheus that is not started yet a past: samples with their times, in OpenMetrics."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "history.txt"
    source.write_text(openmetrics_text, encoding="utf-8")
    promtool = find_program("promtool", "prometheus")
    argv = [promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(source), str(folder / "data")]
    subprocess.run(argv, check=True, capture_output=True, timeout=BLOCKS_SECONDS)


@contextlib.contextmanager
def run_pushgateway(folder: Path) -> Iterator[Server]:
    """Run a Pushgateway that forgets everything when it ends; its log goes into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    # Debian's build keeps its metrics in a file of the machine unless told otherwise.
    arguments = (f"--web.listen-address=127.0.0.1:{port}", "--persistence.file=", "--log.level=warn")
    log_file = folder / "pushgateway.log"
    with _serve(
        "prometheus-pushgateway", arguments, f"http://127.0.0.1:{port}", ready="/-/ready", log_file=log_file
    ) as server:
        yield server


@contextlib.contextmanager
def run_node_exporter(textfile_dir: Path) -> Iterator[Server]:
    """Run a node_exporter that serves nothing but the ``*.prom`` files of this folder; its log lies beside them."""
    port = free_port()
    arguments = (
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={textfile_dir}",
    )
    log_file = textfile_dir / "node_exporter.log"
    with _serve(
        "prometheus-node-exporter", arguments, f"http://127.0.0.1:{port}", ready="/", log_file=log_file
    ) as server:
        yield server


@contextlib.contextmanager
def run_victoria_metrics(folder: Path, config_text: str = "") -> Iterator[Server]:
    """Run a VictoriaMetrics, which scrapes when it is given a configuration; its files go into the folder.

    New series show up in queries after some ten seconds, or at once after ``get("/internal/force_flush")``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "scrape.yml"
    config.write_text(config_text, encoding="utf-8")
    port = free_port()
    arguments = (
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-storageDataPath={folder}/data",
        f"-promscrape.config={config}",
        # Queries answer up to now; by default the last 30 s are held back.
        "-search.latencyOffset=0s",
        "-loggerLevel=WARN",
    )
    with _serve(
        "victoria-metrics", arguments, f"http://127.0.0.1:{port}", ready="/health", log_file=folder / "victoria.log"
    ) as server:
        yield server


@contextlib.contextmanager
def _serve(
    program: str,
    arguments: tuple[str, ...],
    url: str,
    *,
    ready: str,
    log_file: Path,
    opener: urllib.request.OpenerDirector = _OPENER,
) -> Iterator[Server]:
    # Debian names each package like its program.
    argv = (find_program(program, program), *arguments)
    supervisor = Supervisor()
    daemon = Daemon(name=program, argv=argv, environment={"PATH": SEARCH_PATH}, log_file=log_file)
    try:
        server = Server(url=url, pid=supervisor.start(daemon).pid, opener=opener)
        supervisor.wait_ready(program, lambda: _answers(server, ready))
        yield server
    finally:
        supervisor.end([program])


def _answers(server: Server, path: str) -> bool:
    try:
        server.get(path)
    except (LabError, OSError):
        return False
    return True
