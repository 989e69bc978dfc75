# SPDX-License-Identifier: Apache-2.0
"""Check over real sockets who may push, what comes back, and what is on the page then."""

from __future__ import annotations

import base64
import gzip
import threading
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from slurmscope.http.server.request import HttpRequest
from slurmscope.inbox.inbox import PushEndpoint
from slurmscope.inbox.store import InboxSettings
from tests.fakes.push_inbox import RunningInbox, open_inbox, open_store
from tests.processes import until

X = frozenset({("job", "x")})


@pytest.fixture
def inbox() -> Iterator[RunningInbox]:
    """Run an inbox with the default settings."""
    with open_inbox() as running:
        yield running


def test_put_post_and_delete_answer_as_the_original(inbox: RunningInbox) -> None:
    assert (200, b"") == ((answer := inbox.send("PUT", "/metrics/job/x", b"a 1\nb 1\n")).status, answer.body)
    assert 200 == inbox.send("POST", "/metrics/job/x", b"b 2\n").status
    now = inbox.clock.now
    assert {
        ("a", X): 1,
        ("b", X): 2,
        ("push_time_seconds", X): now,
        ("push_failure_time_seconds", X): 0,
    } == inbox.samples()

    assert 202 == inbox.send("DELETE", "/metrics/job/x").status
    assert 202 == inbox.send("DELETE", "/metrics/job/x").status
    assert {} == inbox.samples()
    assert 405 == inbox.send("GET", "/metrics/job/x").status
    assert 404 == inbox.send("PUT", "/metrics/jobs/x", b"a 1\n").status
    assert 405 == inbox.send("PUT", "/metrics", b"a 1\n").status


def test_body_may_be_compressed_or_missing(inbox: RunningInbox) -> None:
    assert 200 == inbox.send("PUT", "/metrics/job/x", gzip.compress(b"a 1\n"), Content_Encoding="gzip").status
    assert 1 == inbox.samples()["a", X]
    assert 415 == inbox.send("PUT", "/metrics/job/x", b"a 2\n", Content_Encoding="snappy").status
    assert 400 == inbox.send("PUT", "/metrics/job/x", Transfer_Encoding="chunked").status
    assert 200 == inbox.send("PUT", "/metrics/job/x").status
    assert {"push_time_seconds", "push_failure_time_seconds"} == {name for name, _ in inbox.samples()}


def test_time_to_live_of_a_push(inbox: RunningInbox) -> None:
    assert 200 == inbox.send("PUT", "/metrics/job/x?ttl=1m", b"a 1\n").status
    for wrong in ("0", "-1", "soon", ""):
        assert 400 == inbox.send("PUT", f"/metrics/job/y?ttl={wrong}", b"a 1\n").status
    inbox.clock.now += 60
    assert {} == inbox.samples()


def test_too_large_a_body_is_not_read() -> None:
    with open_inbox(InboxSettings(size=20_480)) as inbox:
        assert 413 == inbox.send("PUT", "/metrics/job/x", Content_Length="641").status
        assert 200 == inbox.send("PUT", "/metrics/job/x", b"abcdefg 1\n" + b"#" * 629 + b"\n").status
        assert {"too_large": 1} == inbox.store.refused


def test_clients_that_push_much_take_turns_with_others() -> None:
    store = open_store(clock=iter(range(1, 99)).__next__)
    endpoint = PushEndpoint(store)

    def push(group: str, job: str) -> None:
        request = HttpRequest(method="PUT", path=f"/metrics/job/{job}", headers={}, peer="127.0.0.1", group=group)
        assert 200 == endpoint.answer(request).status

    assert endpoint._turns.acquire("another", 0)
    pushes = [("much", "1"), ("much", "2"), ("much", "3"), ("little", "4")]
    threads = [threading.Thread(target=push, args=each) for each in pushes]
    for number, thread in enumerate(threads, 1):
        thread.start()
        until(lambda number=number: len(endpoint._turns._turns.waiting) == number)  # type: ignore[misc]
    endpoint._turns.release()
    for thread in threads:
        thread.join(60)

    assert ["1", "4", "2", "3"] == [g.labels["job"] for g in sorted(store.groups(), key=lambda group: group.pushed_at)]


def test_pushes_come_from_listed_networks_only_and_not_from_web_pages() -> None:
    with open_inbox(InboxSettings(networks=(ip_network("192.0.2.0/24"),))) as inbox:
        for method in ("PUT", "POST", "DELETE"):
            answer = inbox.send(method, "/metrics/job/x", b"a 1\n")
            assert (403, True) == (answer.status, b"push-inbox.networks" in answer.body)
        assert () == inbox.store.groups()
        assert {"network": 3} == inbox.store.refused
    with open_inbox() as inbox:
        assert 403 == inbox.send("POST", "/metrics/job/x", b"a 1\n", Origin="http://evil.example").status
        assert {"browser": 1} == inbox.store.refused


def test_password_of_the_web_configuration_replaces_the_networks(tmp_path: Path) -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    web_config = tmp_path / "web.yml"
    web_config.write_text(f"basic_auth_users:\n  pusher: {hashed}\n")
    credential = f"Basic {base64.b64encode(b'pusher:secret').decode()}"
    with open_inbox(InboxSettings(networks=()), web_config=web_config) as inbox:
        assert 401 == inbox.send("PUT", "/metrics/job/x", b"a 1\n").status
        assert 401 == inbox.send("DELETE", "/metrics/job/x").status
        assert () == inbox.store.groups()
        assert 200 == inbox.send("PUT", "/metrics/job/x", b"a 1\n", Authorization=credential).status
        assert 1 == len(inbox.store.groups())


def test_metrics_of_every_program_stand_beside_ours_in_one_family(inbox: RunningInbox) -> None:
    body = b"# TYPE process_open_fds gauge\nprocess_open_fds 7\n"
    assert 200 == inbox.send("PUT", "/metrics/job/x", body).status
    page = inbox.send("GET", "/metrics").body.decode()
    (family,) = (f for f in text_string_to_metric_families(page) if f.name == "process_open_fds")
    assert [{}, {"job": "x", "instance": ""}] == [sample.labels for sample in family.samples]
    assert 1 == page.count("# TYPE process_open_fds ")
    assert inbox.send("GET", "/metrics", Accept_Encoding="gzip").headers["content-encoding"] == "gzip"


def test_refused_push_says_why_and_the_page_shows_when(inbox: RunningInbox) -> None:
    answer = inbox.send("PUT", "/metrics/job/x", b"slurm_nodes 1\n")
    assert (400, b"The push is refused: slurm_nodes is a metric of this exporter.\n") == (answer.status, answer.body)
    assert {("push_time_seconds", X): 0, ("push_failure_time_seconds", X): inbox.clock.now} == inbox.samples()


HOSTILE_LINES = st.lists(
    st.sampled_from(
        ["a 1", "a 2", "# TYPE a gauge", "# TYPE a histogram", "a_count 1", "a_sum NaN", 'a_bucket{le="1"} 1',
         'a{job="\\n"} 1', 'a{instance="x"} 1', "slurm_nodes 1", "process_open_fds 1", "push_time_seconds 1",
         "# HELP a \\", "b{é=\"1\"} 1", 'b{x="é\x00\u2028"} 1e400', "# EOF", "a 1 5", "\r", "up 1",
         "slurmscope_build_info 1"]
    )
    | st.text(max_size=20),
    max_size=6,
)  # fmt: skip


METHODS = st.sampled_from(["PUT", "POST", "DELETE"])
GROUPS = st.sampled_from(["x", "y/instance/x", "x/a@base64/Cg"])


@settings(deadline=None)
@given(st.lists(st.tuples(METHODS, GROUPS, HOSTILE_LINES), max_size=5))
def test_no_sequence_of_pushes_breaks_the_page(pushes: list[tuple[str, str, list[str]]]) -> None:
    with open_inbox() as inbox:
        for method, group, lines in pushes:
            body = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
            assert inbox.send(method, f"/metrics/job/{group}", body).status in {200, 202, 400}
        page = inbox.send("GET", "/metrics").body.decode()
        series = [
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        ]
        assert len(series) == len(set(series))
        headers = [line for line in page.split("\n") if line.startswith("# TYPE ")]
        assert len(headers) == len({header.split()[2] for header in headers})
        assert 1 == page.count("\nprocess_open_fds ")
