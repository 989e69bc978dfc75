# SPDX-License-Identifier: Apache-2.0
"""The agent accepts writes as InfluxDB does, from root only; whatever is sent to it, it goes on."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import bcrypt
import pytest

from slurmscope.core.errors import ConfigError, SourceError
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.address import ListenHost
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.profile.events import Profile
from slurmscope.profile.feature import ProfileSettings, check_push, find_running
from slurmscope.profile.influxdb import BODY_LIMIT_BYTES, InboxOptions, ProfileInbox
from slurmscope.profile.service import NodeProfiling
from slurmscope.profile.steps import ProfileSteps
from tests.fakes.certificates import make_authority, make_identity
from tests.fakes.exporters import load_role
from tests.fakes.raw_http import Answer, connect, read_answer
from tests.processes import until
from tests.requirements import require_program

LINE = b"CPUTime,job=12,step=0,task=1,host=n1 value=1.98 1700000012\n"
NETWORK = (
    b"PacketsIn,job=12,step=0,task=Network,host=n1 value=5 1700000012\n"
    b"InMB,job=12,step=0,task=Network,host=n1 value=16 1700000012\n"
)
GPU = b"GPUMemMB,job=12,step=0,task=1,host=n1 value=3 1700000012\n"
TARGET = "/write?db=slurm&rp=autogen&precision=s"
LOOPBACK = InboxOptions(address="127.0.0.1:0")


def make_steps() -> ProfileSteps:
    """Return steps that are kept for long."""
    return ProfileSteps(grace_seconds=3600, timeout_seconds=3600)


@pytest.fixture
def inbox() -> Iterator[ProfileInbox]:
    """Accept writes of the user of the test, who need not be root."""
    with closing(ProfileInbox(LOOPBACK, make_steps())) as opened:
        yield opened


def write(inbox: ProfileInbox, body: bytes, target: str = TARGET, *lines: str, method: str = "POST") -> Answer:
    """Send a body as curl does."""
    head = (f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *lines, "", "")
    with connect(ListenHost("127.0.0.1", inbox.port)) as sock:
        sock.sendall("\r\n".join(head).encode() + body)
        return read_answer(sock, method=method)


def measured(inbox: ProfileInbox) -> dict[tuple[str, str], float]:
    """Return the numbers of the only step."""
    (step,) = inbox.intake.read().steps
    return dict(step.measured)


def test_written_samples_are_added_up(inbox: ProfileInbox) -> None:
    assert (204, b"") == ((answer := write(inbox, LINE)).status, answer.body)
    assert 204 == write(inbox, LINE + LINE).status

    assert {("task_cpu_seconds", "1"): pytest.approx(3 * 1.98)} == measured(inbox)


def test_curl_can_write(inbox: ProfileInbox, tmp_path: Path) -> None:
    """Slurm uses the same library; a body of more than 1 KiB is announced before it is sent."""
    body = tmp_path / "body"
    body.write_bytes(LINE * 250)
    url = f"http://127.0.0.1:{inbox.port}{TARGET}"
    argv = [
        require_program("curl"),
        "-sS",
        "-w",
        "%{http_code}",
        "-H",
        "Expect: 100-continue",
        "--data-binary",
        f"@{body}",
        url,
    ]
    assert "204" == subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout

    assert {("task_cpu_seconds", "1"): pytest.approx(250 * 1.98)} == measured(inbox)


def test_write_of_another_user_is_refused_and_counted() -> None:
    with closing(ProfileInbox(LOOPBACK, make_steps(), writers={os.geteuid() + 1})) as inbox:
        answer = write(inbox, LINE)

        assert (403, True) == (answer.status, b"not root" in answer.body)
        assert ((), 1) == (inbox.intake.read().steps, inbox.intake.read().rejected["sender"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_owner_of_the_connection_is_who_opened_it(inbox: ProfileInbox) -> None:
    url = f"http://127.0.0.1:{inbox.port}{TARGET}"
    argv = [
        require_program("curl"),
        "-sS",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--data-binary",
        LINE.decode(),
        url,
    ]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True, user=65534, cwd="/")

    assert ("403", ()) == (run.stdout, inbox.intake.read().steps)


def test_malformed_lines_cost_only_themselves(inbox: ProfileInbox) -> None:
    answer = write(inbox, b"nonsense\n" + LINE)

    assert (400, True) == (answer.status, b"partial write: 1 lines" in answer.body)
    assert {("task_cpu_seconds", "1"): 1.98} == measured(inbox)
    assert 1 == inbox.intake.read().rejected["malformed"]


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/write?db=slurm", "POST", 400),
        ("/write?db=slurm&precision=ns", "POST", 400),
        ("/query?q=x", "POST", 404),
        ("/", "POST", 404),
        (TARGET, "PUT", 405),
    ],
)
def test_other_requests_are_refused(inbox: ProfileInbox, target: str, method: str, status: int) -> None:
    assert status == write(inbox, LINE, target, method=method).status
    assert () == inbox.intake.read().steps


def test_size_of_a_body_is_limited(inbox: ProfileInbox) -> None:
    with connect(ListenHost("127.0.0.1", inbox.port)) as sock:
        sock.sendall(f"POST {TARGET} HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY_LIMIT_BYTES + 1}\r\n\r\n".encode())
        assert 413 == read_answer(sock).status
    assert 415 == write(inbox, LINE, TARGET, "Content-Encoding: gzip").status

    assert 2 == inbox.intake.read().rejected["malformed"]


def test_fields_of_unknown_meaning_are_left_out(inbox: ProfileInbox) -> None:
    assert 204 == write(inbox, NETWORK + GPU).status

    assert {("network_receive_packets", ""): 5.0} == measured(inbox)


@pytest.mark.parametrize(("name", "megabyte"), [("ofed", 1048576), ("sysfs", 65536)])
def test_settings_say_what_the_fields_mean(name: str, megabyte: int) -> None:
    options = InboxOptions(address="127.0.0.1:0", has_gpus=True, interconnect=name)
    with closing(ProfileInbox(options, make_steps())) as inbox:
        write(inbox, NETWORK + GPU.replace(b"value=3", b"value=7"))
        # Slurm does not set it in the first sample of a task.
        assert ("task_gpu_memory_bytes", "1") not in measured(inbox)
        write(inbox, GPU.replace(b"1700000012", b"1700000022"))

        assert {
            ("network_receive_packets", ""): 5.0,
            ("network_receive_bytes", ""): 16.0 * megabyte,
            ("task_gpu_memory_bytes", "1"): 3 * 1048576.0,
        } == measured(inbox)


def test_second_process_takes_nothing_and_follows_the_first(inbox: ProfileInbox) -> None:
    """As doctor does while the agent runs, and the new agent at a reload."""
    options = InboxOptions(address=f"127.0.0.1:{inbox.port}")
    with closing(ProfileInbox(options, make_steps())) as second:
        (check,) = second.checks()
        assert (True, True) == (check.is_good, "another process" in check.message)
        assert (Profile(), None) == (second.intake.read(), second.intake.read_own())
        inbox.close()
        until(lambda: second.port)
        assert 204 == write(second, LINE).status
        assert second.intake.read_own() == second.intake.read() != Profile()


@pytest.mark.parametrize(
    ("address", "is_loopback"),
    [
        ("127.0.0.1:8086", True), ("127.9.9.9:8086", True), ("[::1]:8086", True), ("localhost:8086", True),
        (":8086", False), ("0.0.0.0:8086", False), ("[::]:8086", False), ("192.0.2.1:8086", False),
        ("node1:8086", False), ("localhost.example.org:8086", False),
    ],
)  # fmt: skip
def test_other_addresses_need_tls_and_users(address: str, is_loopback: bool) -> None:
    options = InboxOptions(address=address)
    assert is_loopback == options.is_loopback()
    if not is_loopback:
        with pytest.raises(ConfigError, match="not a loopback address"):
            ProfileInbox(options, make_steps())


USERS = "basic_auth_users:\n  slurm: {digest}\n"
TLS = "tls_server_config:\n  cert_file: here.pem\n  key_file: here.key\n"
CLIENTS = TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"


@pytest.mark.parametrize(("text", "is_enough"), [(USERS, False), (TLS, False), (CLIENTS, True), (TLS + USERS, True)])
def test_web_configuration_must_require_both(tmp_path: Path, text: str, is_enough: bool) -> None:
    file = tmp_path / "web.yml"
    file.write_text(text.format(digest=bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()))
    options = InboxOptions(address="0.0.0.0:8086", config_file=file)
    if is_enough:
        options.check()
    else:
        with pytest.raises(ConfigError, match=r"web\.config\.file"):
            options.check()


def test_writes_over_tls_need_the_password(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "ca")
    make_identity(tmp_path, "here", authority, "IP:127.0.0.1")
    file = tmp_path / "web.yml"
    file.write_text((TLS + USERS).format(digest=bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()))
    options = InboxOptions(address="0.0.0.0:0", config_file=file)
    context = ssl.create_default_context(cafile=str(authority.cert))
    with closing(ProfileInbox(options, make_steps())) as inbox:
        for password, status in ((b"wrong", 401), (b"secret", 204)):
            token = base64.b64encode(b"slurm:" + password).decode()
            head = f"POST {TARGET} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {token}\r\nContent-Length: {len(LINE)}"
            with connect(ListenHost("127.0.0.1", inbox.port)) as raw:
                sock = context.wrap_socket(raw, server_hostname="127.0.0.1")
                with sock:
                    sock.sendall(head.encode() + b"\r\n\r\n" + LINE)
                    assert status == read_answer(sock).status

        assert {("task_cpu_seconds", "1"): 1.98} == measured(inbox)


def test_broken_web_configuration_is_reported_and_retried(tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    authority = make_authority(tmp_path, "ca")
    make_identity(tmp_path, "here", authority, "IP:127.0.0.1")
    key = (tmp_path / "here.key").read_text()
    (tmp_path / "here.key").write_text("no key")
    file.write_text((TLS + USERS).format(digest=bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()))
    options = InboxOptions(address="0.0.0.0:0", config_file=file)
    with closing(ProfileInbox(options, make_steps())) as inbox:
        with pytest.raises(SourceError):
            inbox.intake.read()
        (check,) = inbox.checks()
        assert (False, None) == (check.is_good, inbox.intake.read_own())
        (tmp_path / "here.key").write_text(key)
        until(lambda: next(iter(inbox.checks())).is_good)
        assert () == inbox.intake.read().steps


def test_agent_ends_the_steps_of_jobs_that_are_gone() -> None:
    jobs: list[frozenset[int] | None] = [frozenset({12}), None, frozenset()]
    settings = ProfileSettings(influxdb_listen_address="127.0.0.1:0")
    profiling = NodeProfiling(settings, grace_seconds=3600, host="here", find_running=lambda: jobs.pop(0))
    with profiling.open():
        (inbox,) = profiling._receivers
        assert isinstance(inbox, ProfileInbox)
        write(inbox, LINE)
        ended = [[step.has_ended for step in profiling.read().steps] for _ in range(3)]

        assert [[False], [False], [True]] == ended
        assert ["profile influxdb"] == [check.name for check in profiling.checks()]


def test_running_jobs_are_those_that_have_not_ended() -> None:
    def read() -> object:
        return NodeJobs(jobs=(JobUse(key=JobKey(1)), JobUse(key=JobKey(2), has_ended=True)))

    def fail() -> object:
        raise SourceError("no cgroups")

    assert frozenset({1}) == find_running(SharedReading("jobs", read, interval_seconds=0))
    assert find_running(SharedReading("jobs", fail, interval_seconds=0)) is None


@pytest.mark.parametrize(
    ("flag", "value"),
    [("profile.influxdb-listen-address", "8086"), ("profile.influxdb-interconnect", "tcp")],
)
def test_wrong_settings_are_refused(flag: str, value: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        load_role("node", {flag: value})


def test_interconnect_may_have_slurms_whole_name() -> None:
    flags = {"profile.influxdb-interconnect": "acct_gather_interconnect/sysfs"}
    config = load_role("node", flags)

    assert "sysfs" == config.of(ProfileSettings).influxdb_interconnect


def test_push_needs_a_receiver() -> None:
    with pytest.raises(ConfigError, match=r"profile\.push needs"):
        check_push(ProfileSettings(push="http://127.0.0.1:1"))
