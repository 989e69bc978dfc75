# SPDX-License-Identifier: Apache-2.0
"""Attack: a target of ``slurmscope up`` reports jobs of other nodes, and collects the bearer tokens it is sent."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.processes import PATIENCE_SECONDS, run_slurmscope, running, until, values

CPU = 'jobs_cpu_seconds_total{{slurm_job="{job}",slurm_node="{node}",user="ada"}} {seconds}\n'
HEAD = "# TYPE jobs_cpu_seconds_total counter\n"
HONEST = HEAD + CPU.format(job=7, node="n1", seconds=5)
HOSTILE = (
    HEAD
    + CPU.format(job=8, node="n2", seconds=6)
    + CPU.format(job=7, node="n1", seconds=1e9)
    + CPU.format(job=9, node="n1", seconds=1e9)
    + '# TYPE slurm_jobs gauge\nslurm_jobs{state="RUNNING"} 999999\n'
)


@dataclass
class Listener:
    """Hold what a server on a node was sent."""

    port: int
    tokens: list[str] = field(default_factory=list)


@contextlib.contextmanager
def listening(page: str, token: str = "") -> Iterator[Listener]:
    """Serve a page, to those who know the token if there is one, and write down every token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listener.tokens.append(self.headers.get("Authorization", ""))
            is_known = not token or listener.tokens[-1] == f"Bearer {token}"
            body = page.encode() if is_known else b""
            self.send_response(200 if is_known else 401)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("", 0), Handler) as server:
        listener = Listener(port=server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield listener
        finally:
            server.shutdown()
            thread.join()


def recorded(file: Path) -> set[tuple[str, str, str]]:
    """Return metric, node and job of every recorded series."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT metric, labels FROM heads").fetchall()
    found = [(metric, dict(json.loads(labels))) for metric, labels in rows]
    return {(metric, labels.get("slurm_node", ""), labels.get("slurm_job", "")) for metric, labels in found}


def up_flags(folder: Path, *targets: str) -> tuple[str, ...]:
    for node, token in (("n1", "token-of-one"), ("n2", "token-of-two")):
        (folder / node).write_text(f"{token}\n")
    return (
        *("--portal.listen-address=127.0.0.1:0", "--no-up.cluster", "--no-up.node", "--recorder.interval=1s"),
        *(f"--archive.url={folder}/archive.db", f"--recorder.file={folder}/recorder.db"),
        *(f"--slurm.bin-path={folder}", f"--up.bearer-token-file={folder}/{{node}}"),
        *(f"--up.targets={target}" for target in targets),
    )


def test_hostile_agent_reports_its_own_node_only_and_gets_its_own_token_only(tmp_path: Path) -> None:
    with listening(HONEST, "token-of-one") as honest, listening(HOSTILE) as hostile:
        flags = up_flags(tmp_path, f"n1=http://127.0.0.1:{honest.port}", f"n2=http://127.0.0.1:{hostile.port}")
        with running("up", *flags, wait_for="msg=listening address=http") as up:
            until(lambda: min(len(honest.tokens), len(hostile.tokens)) >= 4)
            address = up.addresses[0].rstrip("/")
            with urllib.request.urlopen(f"{address}/metrics", timeout=PATIENCE_SECONDS) as answer:
                dropped = values(answer.read().decode(), "slurmscope_recorder_dropped_samples_total")
            found = recorded(tmp_path / "recorder.db")

    assert {("jobs_cpu_seconds_total", "n1", "7"), ("jobs_cpu_seconds_total", "n2", "8")} == found
    # Two forged jobs and one number of the cluster, each time.
    assert dropped["foreign",] >= 9
    assert {"Bearer token-of-two"} == {*hostile.tokens}
    assert 1 == sum("ignored what a node agent reports beyond its own node" in line for line in up.log)


def test_no_token_is_sent_over_the_network_in_clear_text(tmp_path: Path) -> None:
    with listening(HOSTILE) as listener:
        done = run_slurmscope("up", *up_flags(tmp_path, f"n1=http://{_own_address()}:{listener.port}"))

    assert 2 == done.returncode
    assert "the bearer token would be sent to n1=http://" in done.stderr
    assert [] == listener.tokens


def _own_address() -> str:
    """Return the address of this machine in its network; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:  # a machine without a network
            return "192.0.2.1"
        return str(sock.getsockname()[0])
