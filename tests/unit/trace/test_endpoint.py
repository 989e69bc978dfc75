# SPDX-License-Identifier: Apache-2.0
"""Check over real sockets who may send samples for a job, and that a refused post stores nothing."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from slurmscope.core.errors import CommandTimedOut
from slurmscope.http.server.connection import ConnectionLimits
from slurmscope.http.server.request import HttpRequest, is_loopback, peer_group
from slurmscope.slurm.munge import MungeCredential
from slurmscope.trace.callers import BURST_SECONDS, DECODES_PER_SECOND, CallerFinder, Refusal
from slurmscope.trace.samples import TraceSample, parse_samples
from slurmscope.trace.settings import TraceLimits
from tests.fakes.raw_http import Answer, connect, exchange, get, read_answer, status_of
from tests.fakes.trace_endpoint import ADA, EVE, RunningEndpoint, open_endpoint, token
from tests.processes import until

SAMPLE = {"job_id": ADA.job_id, "pid": 812, "cpus": 99.5, "mem": 1000}
PLAIN = "127.0.0.0/8"
UNKNOWN = ADA._replace(job_id=99)


@pytest.fixture
def endpoint() -> Iterator[RunningEndpoint]:
    """Run an endpoint that accepts tokens only."""
    with open_endpoint() as running:
        yield running


def refusal(answer: Answer) -> tuple[int, str]:
    """Return status and code of a refusal, whose JSON shape is always the same."""
    body = json.loads(answer.body)
    assert {"error", "code"} == body.keys()
    assert body["error"].endswith(".")
    assert "application/json" == answer.headers["content-type"]
    return answer.status, body["code"]


def test_sample_with_a_token_is_stored_under_the_node_and_owner_of_slurm(endpoint: RunningEndpoint) -> None:
    answer = endpoint.post(SAMPLE, credential=token())

    assert (204, b"") == (answer.status, answer.body)
    assert "content-length" not in answer.headers
    (process,) = endpoint.processes()
    assert (ADA, "n1", "token", 812, 1000.0) == (
        process.owner, process.host, process.way, process.sample.pid, process.sample.memory_bytes,
    )  # fmt: skip


def test_tokens_of_the_key_before_a_rotation_are_accepted(endpoint: RunningEndpoint) -> None:
    assert 204 == endpoint.post(SAMPLE, credential=token(key="old")).status


def test_nodes_and_ranks_of_one_job_do_not_overwrite_each_other(endpoint: RunningEndpoint) -> None:
    for node, pid in (("n1", 1), ("n1", 2), ("n2", 1), ("n2", 1)):
        assert 204 == endpoint.post({**SAMPLE, "pid": pid}, credential=token(node=node)).status

    assert {("n1", 1), ("n1", 2), ("n2", 1)} == {(p.host, p.sample.pid) for p in endpoint.processes()}


def test_list_is_stored_as_a_whole_or_not_at_all(endpoint: RunningEndpoint) -> None:
    pair = [{**SAMPLE, "pid": 1}, {**SAMPLE, "pid": 2}]
    assert 204 == endpoint.post(pair, credential=token()).status
    assert (403, "owner") == refusal(endpoint.post([{**SAMPLE, "pid": 3}, {"job_id": EVE.job_id}], credential=token()))
    assert {1, 2} == {process.sample.pid for process in endpoint.processes()}


ONE_SECOND_AFTER_1970 = 1


@pytest.mark.parametrize(
    ("credential", "status", "code"),
    [
        ("", 401, "way"),
        ("Bearer", 401, "credential"),
        ("Bearer nonsense", 401, "credential"),
        (f"{token()}x", 401, "credential"),
        (token().replace("/1000/", "/1001/"), 401, "credential"),
        (token().replace("sst1/new/", "sst1/old/"), 401, "credential"),
        (token().replace("sst1/new/", "sst1/gone/"), 401, "credential"),
        (token(expiry=ONE_SECOND_AFTER_1970), 401, "credential"),
        (token(EVE, node="n2"), 403, "owner"),
        (token(uid=EVE.uid), 403, "owner"),
        (token(uid=0), 403, "owner"),
        (token(node="n3"), 409, "host"),
        ("Munge MUNGE:abc:", 401, "way"),
        ("Basic YTpi", 401, "way"),
    ],
    ids=[
        "none", "empty", "nonsense", "longer", "other uid", "signed with another key", "unknown key", "expired",
        "of another job", "of another user", "of root", "of another node", "munge is off", "password",
    ],
)  # fmt: skip
def test_bad_credential_is_refused_and_nothing_is_stored(
    endpoint: RunningEndpoint, credential: str, status: int, code: str
) -> None:
    assert (status, code) == refusal(endpoint.post(SAMPLE, credential=credential))
    assert () == endpoint.processes()
    assert {code: 1} == endpoint.store.refused


@pytest.mark.parametrize(
    ("sample", "status", "code"),
    [
        ({"job_id": EVE.job_id}, 403, "owner"),
        ({"job_id": 99}, 403, "owner"),
        ({**SAMPLE, "username": "eve"}, 403, "user"),
        ({**SAMPLE, "hostname": "n2"}, 409, "host"),
        ({**SAMPLE, "hostname": "elsewhere"}, 409, "host"),
    ],
    ids=["another job", "unknown job", "another user", "another node of the job", "a foreign host"],
)
def test_body_that_contradicts_the_token_is_refused(
    endpoint: RunningEndpoint, sample: dict[str, object], status: int, code: str
) -> None:
    assert (status, code) == refusal(endpoint.post(sample, credential=token()))
    assert () == endpoint.processes()


def test_job_that_does_not_run_is_refused() -> None:
    with open_endpoint(plain=PLAIN) as endpoint:
        answer = endpoint.post({"job_id": 99, "hostname": "n1"})
    assert (404, "job") == refusal(answer)
    assert "retry-after" in answer.headers


def test_host_must_be_a_node_of_the_job() -> None:
    with open_endpoint(plain=PLAIN) as endpoint:
        assert (409, "host") == refusal(endpoint.post({"job_id": EVE.job_id, "hostname": "n1"}))
        assert 204 == endpoint.post({"job_id": EVE.job_id, "pid": 1, "hostname": "n2.cluster.example"}).status
        assert 204 == endpoint.post({"job_id": EVE.job_id, "pid": 2}).status
        assert (400, "host") == refusal(endpoint.post({"job_id": ADA.job_id}))
        endpoint.slurm.hosts = {"n1": "machine", "n2": "other"}
        until(lambda: 204 == endpoint.post({"job_id": ADA.job_id, "pid": 3, "hostname": "machine"}).status)
        assert ["n2", "n2", "n1"] == [process.host for process in endpoint.processes()]


def test_plain_posts_are_limited_to_listed_networks() -> None:
    with open_endpoint(plain="10.0.0.0/8,::1/128") as endpoint:
        assert (403, "network") == refusal(endpoint.post(SAMPLE))
        assert () == endpoint.processes()


def test_munge_credential_is_bound_to_the_body_and_its_user() -> None:
    body = json.dumps({**SAMPLE, "hostname": "n1"}).encode()
    payload = hashlib.sha256(body).hexdigest().encode()
    made_by = {"MUNGE:ada:": ADA.uid, "MUNGE:eve:": EVE.uid, "MUNGE:root:": 0}

    def decode(text: str) -> MungeCredential | None:
        if text == "MUNGE:stuck:":
            raise CommandTimedOut(("unmunge",), "unmunge timed out")
        return MungeCredential(made_by[text], payload) if text in made_by else None

    with open_endpoint(decode_munge=decode) as endpoint:
        assert (401, "credential") == refusal(endpoint.post(body, credential="Munge MUNGE:replayed:"))
        assert (401, "credential") == refusal(endpoint.post(body + b" ", credential="Munge MUNGE:ada:"))
        assert (403, "owner") == refusal(endpoint.post(body, credential="Munge MUNGE:eve:"))
        assert (503, "unavailable") == refusal(endpoint.post(body, credential="Munge MUNGE:stuck:"))
        assert () == endpoint.processes()
        assert 204 == endpoint.post(body, credential="Munge MUNGE:ada:").status
        assert 204 == endpoint.post(body, credential="munge MUNGE:root:").status
        assert ["munge"] == [process.way for process in endpoint.processes()]


def test_address_with_many_munge_credentials_starts_few_processes() -> None:
    decoded: list[str] = []
    with open_endpoint(decode_munge=decoded.append) as endpoint:
        answers = [refusal(endpoint.post(SAMPLE, credential=f"Munge MUNGE:{number}:")) for number in range(100)]
        assert {(401, "credential"), (429, "rate")} == set(answers)
        assert DECODES_PER_SECOND * BURST_SECONDS == len(decoded)
        assert 204 == endpoint.post(SAMPLE, credential=token()).status
        endpoint.time.now += 1
        assert (401, "credential") == refusal(endpoint.post(SAMPLE, credential="Munge MUNGE:again:"))


@pytest.mark.parametrize("peers", [[f"127.0.0.{n}" for n in range(1, 101)], [f"2001:db8::{n}" for n in range(100)]])
def test_one_client_with_many_addresses_starts_few_processes(peers: list[str]) -> None:
    decoded: list[str] = []
    finder = CallerFinder(decode_munge=decoded.append, clock=lambda: 0.0)
    for peer in peers:
        request = HttpRequest(
            method="POST",
            path="/trace",
            headers={"authorization": f"Munge MUNGE:{peer}:"},
            peer=peer,
            group=peer_group(peer, 1001 if is_loopback(peer) else None),
        )
        with pytest.raises(Refusal):
            finder.find(request)
    assert DECODES_PER_SECOND * BURST_SECONDS == len(decoded)


def test_controller_that_is_down_keeps_known_jobs_and_no_others() -> None:
    with open_endpoint(plain=PLAIN) as endpoint:
        assert 204 == endpoint.post({**SAMPLE, "hostname": "n1"}).status
        endpoint.slurm.is_down = True
        assert 204 == endpoint.post({**SAMPLE, "hostname": "n1"}).status
        answer = endpoint.post({"job_id": 99, "hostname": "n1"})
        assert (503, "slurm") == refusal(answer)
        assert "retry-after" in answer.headers
        endpoint.time.now += 301
        assert (503, "slurm") == refusal(endpoint.post({**SAMPLE, "hostname": "n1"}))


def test_ended_job_is_known_for_its_grace_period(endpoint: RunningEndpoint) -> None:
    assert 204 == endpoint.post({**SAMPLE, "interval": 600}, credential=token()).status
    endpoint.slurm.jobs.pop(ADA.job_id)
    assert 204 == endpoint.post({**SAMPLE, "interval": 600}, credential=token()).status
    endpoint.time.now += 29
    assert 1 == len(endpoint.processes())
    endpoint.time.now += 2
    assert () == endpoint.processes()
    assert (404, "job") == refusal(endpoint.post(SAMPLE, credential=token()))


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content_Type": "text/plain"}, 415, "media_type"),
        ({"Content_Type": ""}, 415, "media_type"),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415, "media_type"),
        ({"Content_Encoding": "gzip"}, 415, "encoding"),
        ({"Content_Length": "65537"}, 413, "too_large"),
        ({"Content_Length": "10485760"}, 413, "too_large"),
        ({"Content_Length": ""}, 400, "length"),
        ({"Content_Length": "", "Transfer_Encoding": "chunked"}, 400, "length"),
    ],
)
def test_head_of_a_body_that_would_be_refused(
    endpoint: RunningEndpoint, headers: dict[str, str], status: int, code: str
) -> None:
    assert (status, code) == refusal(endpoint.post(SAMPLE, credential=token(), **headers))
    assert () == endpoint.processes()


def test_json_with_a_charset_is_accepted(endpoint: RunningEndpoint) -> None:
    answer = endpoint.post(SAMPLE, credential=token(), Content_Type="application/json; charset=utf-8")
    assert 204 == answer.status


def test_malformed_body_is_refused(endpoint: RunningEndpoint) -> None:
    for body in (b"", b"{", b'{"job_id": NaN}', b"[" * 60000):
        assert (400, "malformed") == refusal(endpoint.post(body, credential=token()))


def head(length: int, *lines: str, credential: str | None = None) -> bytes:
    fixed = ("POST /trace HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}")
    credential = token() if credential is None else credential
    authorization = (f"Authorization: {credential}",) if credential else ()
    return "\r\n".join((*fixed, *authorization, *lines, "", "")).encode()


def test_slow_body_is_given_up() -> None:
    with open_endpoint(connection_limits=ConnectionLimits(body_seconds=0.2)) as endpoint:
        with connect(endpoint.address) as sock:
            sock.sendall(head(100) + b'{"job_id"')
            answer = read_answer(sock, method="POST")
        assert (408, "timeout") == refusal(answer)
        assert "close" == answer.headers["connection"]
        assert () == endpoint.processes()


def test_body_shorter_than_its_length_is_no_sample(endpoint: RunningEndpoint) -> None:
    assert b"" == exchange(endpoint.address, head(1000) + json.dumps(SAMPLE).encode())
    assert () == endpoint.processes()


def test_body_longer_than_its_length_is_a_next_request_that_is_refused(endpoint: RunningEndpoint) -> None:
    body = json.dumps(SAMPLE).encode()
    received = exchange(endpoint.address, head(len(body)) + body + b"garbage\r\n\r\n")
    assert 204 == status_of(received)
    assert b"HTTP/1.1 400" in received
    assert 1 == len(endpoint.processes())


def test_connection_is_kept_for_many_posts(endpoint: RunningEndpoint) -> None:
    body = json.dumps(SAMPLE).encode()
    bad = b"{]"
    with connect(endpoint.address) as sock:
        for data, status in ((body, 204), (bad, 400), (body, 204)):
            sock.sendall(head(len(data)) + data)
            assert status == read_answer(sock, method="POST").status
        sock.sendall((head(len(body)) + body) * 50)
        received = b""
        while received.count(b"HTTP/1.1 204") < 50:
            received += sock.recv(65536)


@pytest.mark.parametrize("credential", ["", token(UNKNOWN)])
def test_senders_for_unknown_jobs_do_not_hold_up_others_while_squeue_hangs(credential: str) -> None:
    body, unknown = json.dumps(SAMPLE).encode(), json.dumps({"job_id": UNKNOWN.job_id, "hostname": "n1"}).encode()
    post, post_unknown = head(len(body)) + body, head(len(unknown), credential=credential) + unknown
    with open_endpoint(plain=PLAIN) as endpoint, ExitStack() as stack:
        stack.callback(endpoint.slurm.answers.set)
        others = [stack.enter_context(connect(endpoint.address)) for _ in range(4)]
        ada = stack.enter_context(connect(endpoint.address))
        for sock, data, status in ((ada, post, 204), *((other, post_unknown, 404) for other in others)):
            sock.sendall(data)
            assert status == read_answer(sock, method="POST").status
        endpoint.slurm.answers.clear()
        endpoint.time.now += 1.0
        for _ in range(3):
            for other in others:
                other.sendall(post_unknown)
            ada.sendall(post)
            assert 204 == read_answer(ada, method="POST").status


def test_client_that_waits_for_permission_gets_it(endpoint: RunningEndpoint) -> None:
    body = json.dumps(SAMPLE).encode()
    with connect(endpoint.address) as sock:
        sock.sendall(head(len(body), "Expect: 100-continue"))
        assert b"HTTP/1.1 100 Continue\r\n\r\n" == sock.recv(100)
        sock.sendall(body)
        assert 204 == read_answer(sock, method="POST").status


def test_flood_of_one_job_is_limited_and_others_are_not() -> None:
    with open_endpoint(limits=TraceLimits(posts_per_job=2)) as endpoint:
        statuses = [endpoint.post(SAMPLE, credential=token()).status for _ in range(40)]
        last = endpoint.post(SAMPLE, credential=token())
        assert {204, 429} == set(statuses)
        assert (429, "rate") == refusal(last)
        assert int(last.headers["retry-after"]) >= 1
        assert 204 == endpoint.post({"job_id": EVE.job_id}, credential=token(EVE, node="n2")).status


def test_flood_of_one_user_is_limited() -> None:
    with open_endpoint(limits=TraceLimits(posts_per_user=2)) as endpoint:
        assert 429 in [endpoint.post(SAMPLE, credential=token()).status for _ in range(40)]


def test_sender_who_may_not_send_uses_up_only_its_own_posts() -> None:
    with open_endpoint(limits=TraceLimits(posts_per_job=1)) as endpoint:
        statuses = [endpoint.post(SAMPLE, credential=token(EVE, node="n2")).status for _ in range(20)]
        assert {403, 429} == set(statuses)
        assert 204 == endpoint.post(SAMPLE, credential=token()).status


def test_posts_above_the_limit_of_their_job_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 samples of 64 kB a post, and bodies that are no JSON at all."""
    parsed: list[int] = []

    def parse(body: bytes) -> tuple[TraceSample, ...]:
        parsed.append(len(body))
        return parse_samples(body)

    monkeypatch.setattr("slurmscope.trace.endpoint.parse_samples", parse)
    with open_endpoint(limits=TraceLimits(posts_per_job=1)) as endpoint:
        bodies = (json.dumps([{"job_id": ADA.job_id, "command": "x" * 60}] * 500).encode(), b"[" * 60_000)
        statuses = [endpoint.post(bodies[number % 2], credential=token()).status for number in range(60)]

    assert {204, 400, 429} == set(statuses)
    assert len(parsed) == 60 - statuses.count(429) < 30


def test_number_of_processes_is_limited() -> None:
    limits = TraceLimits(processes_per_job=3, posts_per_job=0, posts_per_user=0)
    with open_endpoint(limits=limits) as endpoint:
        statuses = [endpoint.post({**SAMPLE, "pid": pid}, credential=token()).status for pid in range(6)]
        assert [204, 204, 204, 429, 429, 429] == statuses
        assert 204 == endpoint.post({**SAMPLE, "pid": 0}, credential=token()).status
        assert 3 == len(endpoint.store)


def test_parallel_posts_are_all_stored(endpoint: RunningEndpoint) -> None:
    def post(first: int) -> None:
        for pid in range(first, first + 10):
            assert 204 == endpoint.post({**SAMPLE, "pid": pid}, credential=token()).status

    # Until the first list of jobs is read, only a few posts may wait for it.
    assert 204 == endpoint.post({**SAMPLE, "pid": 100}, credential=token()).status
    threads = [threading.Thread(target=post, args=(100 * number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 60 == len(endpoint.processes())


def test_other_methods_are_refused(endpoint: RunningEndpoint) -> None:
    for method in ("PUT", "DELETE", "PATCH"):
        answer = get(endpoint.address, "/trace", method=method)
        assert (405, "GET, HEAD, POST") == (answer.status, answer.headers["allow"])


def test_body_of_other_paths_is_not_read(endpoint: RunningEndpoint) -> None:
    answer = get(endpoint.address, "/metrics", method="POST", Content_Length="3")
    assert (405, "close") == (answer.status, answer.headers["connection"])
