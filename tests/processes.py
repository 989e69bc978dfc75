# SPDX-License-Identifier: Apache-2.0
"""Run slurmscope as users do: as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families


def as_user(uid: int, gid: int) -> tuple[str, ...]:
    """Return the prefix of a command that the kernel, Slurm and munge take for one of this user."""
    return (
        "setpriv",
        *(f"--reuid={uid}", f"--regid={gid}", "--clear-groups"),
        # Only root may enter the folder of many clones, such as one in /root.
        *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
    )


AS_NOBODY = as_user(65534, 65534)
PATIENCE_SECONDS = 120
LISTENING = re.compile(r"msg=listening address=(\S+)")

Samples = defaultdict[str, dict[tuple[str, ...], float]]
"""Values by metric and label values; a metric that is not on the page has none."""


@dataclass
class Exporter:
    """Reach a running exporter."""

    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)

    @property
    def addresses(self) -> list[str]:
        return [match[1] for line in self.log if (match := LISTENING.search(line))]

    def get(self, path: str = "/metrics", *, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        request = urllib.request.Request(f"http://{self.addresses[0]}{path}", headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def samples(self, path: str = "/metrics") -> Samples:
        status, page = self.get(path)
        assert 200 == status, page
        return parse_page(page)

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        return values(self.get()[1], name)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def running(
    role: str,
    *flags: str,
    environment: Mapping[str, str] | None = None,
    wait_for: str = "msg=",
    prefix: Sequence[str] = (),
) -> Iterator[Exporter]:
    """Run an exporter until the block ends; wait until its log says so."""
    argv = [*prefix, sys.executable, "-m", "slurmscope", role, *flags]
    process = subprocess.Popen(
        argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=_environment(environment)
    )
    exporter = Exporter(process)
    reader = threading.Thread(target=lambda: exporter.log.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        until(lambda: any(wait_for in line for line in exporter.log) or process.poll() is not None)
        yield exporter
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_SECONDS)
        reader.join(PATIENCE_SECONDS)
        if process.stderr:
            process.stderr.close()


@contextmanager
def serving(
    role: str, *flags: str, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> Iterator[Exporter]:
    """Run an exporter on a free port of the loopback."""
    flags = ("--web.listen-address", "127.0.0.1:0", *flags)
    with running(role, *flags, environment=environment, wait_for="msg=listening", prefix=prefix) as exporter:
        yield exporter


def run_slurmscope(
    *arguments: str, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "slurmscope", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=_environment(environment),
        check=False,
    )


def get_as(portal: Exporter, user: str, path: str, *, timeout_seconds: float = 120) -> tuple[int, str]:
    """Request a page of a portal as its proxy does for this user; return status and body."""
    headers = {"X-Remote-User": user, "Host": "localhost"}
    request = urllib.request.Request(portal.addresses[0].rstrip("/") + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode("utf-8", "replace")


def parse_page(page: str) -> Samples:
    """Return the samples of a page by name and label values, as prometheus_client reads them."""
    samples: Samples = defaultdict(dict)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            samples[sample.name][tuple(sample.labels.values())] = sample.value
    return samples


def values(page: str, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of one name by their label values."""
    return parse_page(page)[name]


def until(condition: Callable[[], object], patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition, for as long as a slow machine may need."""
    deadline = time.monotonic() + patience_seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


DEEP_FILE = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
file = open("file", "w")
print("open", flush=True)
sys.stdin.read()
file.close()
os.unlink("file")
for _ in range(20):
    os.chdir("..")
    os.rmdir("d" * 250)
"""


@contextmanager
def holding_long_path(folder: Path, prefix: Sequence[str] = ()) -> Iterator[int]:
    """Run a process with an open file whose path is longer than readlink can return; give its PID."""
    argv = [*prefix, sys.executable, "-c", DEEP_FILE, str(folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert b"open\n" == process.stdout.readline()
        yield process.pid


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(extra or {})}
