# SPDX-License-Identifier: Apache-2.0
"""Check the Pushgateway client with the real gateway."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
from prometheus_client import CollectorRegistry, Gauge, push_to_gateway
from prometheus_client.parser import text_string_to_metric_families

from lab.ports import free_port
from lab.prometheus import Server, run_pushgateway
from lab.requirements import find_program
from lab.waiting import wait_until
from slurmscope.core.errors import OutputError
from slurmscope.exporter.outputs import PushGateway

HOSTILE = [
    "n1", "a b", "a+b", ".", "..", "a/b", "/", "", "%2F", "%", "?x=1#y", '"\\\n\t\0', "ünï日本", "@base64", "=", "~",
    "\udc80",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_pushgateway(tmp_path_factory.mktemp("pushgateway")) as server:
        yield server


@pytest.fixture(autouse=True)
def _gateway_is_empty_afterwards(server: Server) -> Iterator[None]:
    yield
    for job in ("slurmscope", "other"):
        PushGateway(url=server.url, job=job).delete_left_over()
    wait_until_empty(server)


def wait_until_empty(server: Server) -> None:
    """Wait for what the gateway promised: it accepts a deletion first and does it a moment later."""
    wait_until(lambda: not read_groups(server), "an empty gateway", timeout_seconds=30)


def read_groups(server: Server) -> list[dict[str, str]]:
    """List the groups by the gateway's JSON answer, which our client does not use."""
    return [group["labels"] for group in json.loads(server.get("/api/v1/metrics"))["data"]]


def read_samples(server: Server) -> set[tuple[str, str, float]]:
    return {
        (sample.name, sample.labels["instance"], sample.value)
        for family in text_string_to_metric_families(server.get("/metrics").decode())
        for sample in family.samples
        if sample.labels.get("job") == "slurmscope" and not sample.name.startswith("push_")
    }


def test_put_replaces_the_group_and_delete_removes_it(server: Server) -> None:
    first = PushGateway(url=server.url, job="slurmscope", grouping={"instance": "n1"})
    second = PushGateway(url=server.url, job="slurmscope", grouping={"instance": "n2"})
    first.put([b"# TYPE jobs gauge\njobs 1\n", b"gone 1\n"])
    second.put([b"# TYPE jobs gauge\njobs 7\n"])
    first.put([b"# TYPE jobs gauge\njobs 2\n"])
    assert {("jobs", "n1", 2.0), ("jobs", "n2", 7.0)} == read_samples(server)
    first.delete()
    first.delete()  # what is not there is no error
    second.put([b"# TYPE jobs gauge\njobs 8\n"])  # answered when done, and done in order: so are the deletions
    assert {("jobs", "n2", 8.0)} == read_samples(server)


def test_refusals_are_one_sentence_and_change_nothing(server: Server) -> None:
    good = PushGateway(url=server.url, job="slurmscope", grouping={"instance": "n1"})
    good.put([b"# TYPE jobs gauge\njobs 1\n"])
    bad = PushGateway(url=server.url, job="slurmscope", grouping={"instance": "n2"})
    for page, words in {
        b"# TYPE jobs counter\njobs 1\n": "invalid or inconsistent",
        b"jobs 1 1700000000000\n": "must not have timestamps",
        b"no page at all\n": "parsing error",
    }.items():
        with pytest.raises(OutputError, match=f"^{server.url} answered 400: .*{words}") as caught:
            bad.put([page])
        assert str(caught.value).isprintable()
    assert {("jobs", "n1", 1.0)} == read_samples(server)


@pytest.mark.parametrize("value", HOSTILE)
def test_any_label_value_arrives_and_can_be_deleted(server: Server, value: str) -> None:
    client = PushGateway(url=server.url, job="slurmscope", grouping={"instance": "n1", "x": value})
    client.put([b"jobs 1\n"])
    expected = {"job": "slurmscope", "instance": "n1", "x": value.encode("utf-8", "replace").decode()}
    assert [expected] == read_groups(server)
    assert (expected,) == client.groups()
    client.delete()
    wait_until_empty(server)


def test_group_is_that_of_the_reference_client(server: Server) -> None:
    registry = CollectorRegistry()
    Gauge("jobs", "Jobs.", registry=registry).set(3)
    push_to_gateway(server.url, "slurmscope", registry, {"instance": "n/1", "x": ""})
    assert {("jobs", "n/1", 3.0)} == read_samples(server)
    PushGateway(url=server.url, job="slurmscope", grouping={"instance": "n/1", "x": ""}).delete()
    wait_until_empty(server)


def test_left_over_groups_of_an_earlier_life_are_removed(server: Server) -> None:
    for grouping in ({}, {"instance": "n1"}, {"instance": "n1", "slurm_job": "7"}, {"instance": "n10"}):
        PushGateway(url=server.url, job="slurmscope", grouping=grouping).put([b"jobs 1\n"])
    PushGateway(url=server.url, job="other", grouping={"instance": "n1"}).put([b"jobs 1\n"])
    assert 2 == PushGateway(url=server.url, job="slurmscope", grouping={"instance": "n1"}).delete_left_over()
    PushGateway(url=server.url, job="other", grouping={"instance": "n1"}).put(
        [b"jobs 2\n"]
    )  # comes after the deletions
    assert {("slurmscope", None), ("slurmscope", "n10"), ("other", "n1")} == {
        (group["job"], group.get("instance")) for group in read_groups(server)
    }


def stop(pid: int) -> None:
    """Stop a process and wait until none of its threads answers any more."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    wait_until(
        lambda: all("T (stopped)" in (task / "status").read_text() for task in tasks.iterdir()),
        f"process {pid} to stop",
        timeout_seconds=30,
    )


def test_gateway_that_hangs_is_given_up_and_used_again(tmp_path: Path) -> None:
    pauses: list[float] = []
    with run_pushgateway(tmp_path) as server:
        hasty = PushGateway(url=server.url, job="slurmscope", timeout_seconds=0.3, attempts=3, sleep=pauses.append)
        stop(server.pid)
        try:
            with pytest.raises(OutputError, match=f"^PUT failed after 3 attempts: {server.url} timed out before"):
                hasty.put([b"jobs 1\n"])
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert 2 == len(pauses)
        PushGateway(url=server.url, job="slurmscope").put([b"jobs 1\n"])
        assert {("jobs", "", 1.0)} == read_samples(server)


@contextlib.contextmanager
def starting_gateway(port: int, *arguments: str) -> Iterator[None]:
    """Start a gateway of our own making, without waiting until it listens."""
    program = find_program("prometheus-pushgateway", "prometheus-pushgateway")
    # Debian's build keeps its metrics in a file of the machine unless told otherwise.
    argv = [program, f"--web.listen-address=127.0.0.1:{port}", "--persistence.file=", "--log.level=error", *arguments]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def pause_briefly(_seconds: float) -> None:
    time.sleep(0.1)


def test_gateway_that_comes_up_between_two_attempts_is_reached() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        pauses: list[float] = []

        def start_and_pause(seconds: float) -> None:
            if not pauses:
                stack.enter_context(starting_gateway(port))
            pauses.append(seconds)
            pause_briefly(seconds)

        client = PushGateway(url=url, job="slurmscope", attempts=200, sleep=start_and_pause)
        client.put([b"jobs 1\n"])
        assert ({"job": "slurmscope"},) == client.groups()
    with pytest.raises(OutputError, match=f"^DELETE failed after 1 attempt: {url} is unreachable: Connection refused$"):
        PushGateway(url=url, job="slurmscope", attempts=1).delete()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """Run a gateway that wants TLS and a password; give its port and its certificate."""
    folder = tmp_path_factory.mktemp("secured")
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem", "-days", "2", "-subj", "/CN=localhost"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    hashed = bcrypt.hashpw("p@ss:wörd".encode(), bcrypt.gensalt(4)).decode()
    (folder / "web.yml").write_text(
        f"tls_server_config: {{cert_file: cert.pem, key_file: key.pem}}\nbasic_auth_users: {{'al ice': '{hashed}'}}\n"
    )
    port = free_port()
    with starting_gateway(port, f"--web.config.file={folder}/web.yml"):
        yield port, folder / "cert.pem"


class TestSecured:
    def client(self, port: int, ca_file: Path | None, user: str = "al%20ice:p%40ss:w%C3%B6rd@") -> PushGateway:
        return PushGateway(
            url=f"https://{user}127.0.0.1:{port}",
            job="slurmscope",
            ca_file=ca_file,
            attempts=200,
            sleep=pause_briefly,
        )

    def test_gateway_with_tls_and_password_is_used(self, secured: tuple[int, Path]) -> None:
        client = self.client(*secured)
        client.put([b"jobs 1\n"])
        assert ({"job": "slurmscope"},) == client.groups()
        client.delete()

    @pytest.mark.parametrize("user", ["", "al%20ice:wrong@", "bob:p%40ss:w%C3%B6rd@"])
    def test_wrong_password_is_a_refusal(self, secured: tuple[int, Path], user: str) -> None:
        with pytest.raises(OutputError, match=f"^https://127.0.0.1:{secured[0]} answered 401: Unauthorized$"):
            self.client(*secured, user).put([b"jobs 1\n"])

    def test_unknown_certificate_is_refused(self, secured: tuple[int, Path]) -> None:
        self.client(*secured).delete()  # now it is up
        with pytest.raises(OutputError, match=r"failed after 2 attempts: the certificate of .* is not trusted"):
            dataclasses.replace(self.client(secured[0], None), attempts=2).put([b"jobs 1\n"])

    def test_missing_ca_file_is_told(self, secured: tuple[int, Path]) -> None:
        with pytest.raises(OutputError, match=r"^the CA file /nonexistent cannot be used: .*No such file"):
            self.client(secured[0], Path("/nonexistent")).put([b"jobs 1\n"])
