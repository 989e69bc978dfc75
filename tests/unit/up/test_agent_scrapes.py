# SPDX-License-Identifier: Apache-2.0
"""Check that node agents are recorded, and that a silent or broken one costs nothing but its own page."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slurmscope.core.errors import MalformedAnswer
from slurmscope.http.client.credentials import TokenFile
from slurmscope.recorder.recorder import Recorder
from slurmscope.up.settings import Target, parse_target
from slurmscope.up.up import AgentScrapes

PAGE = b'jobs_cores{slurm_job="1",slurm_node=""} 4\n'


class Pages(Recorder):
    """Keep the pages that are recorded; ``broken`` is refused."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, str, str]] = []

    def record_page(self, at_seconds: float, page: str, *, nodes: tuple[str, ...], source: str = "") -> int:
        if page == "broken":
            raise MalformedAnswer("line 1: it has no end")
        self.kept.append((at_seconds, page, nodes[0]))
        return page.count('slurm_node="other"')


class Agent(ThreadingHTTPServer):
    """Serve one page, and record requests."""

    daemon_threads = True
    status, page = 200, PAGE

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.requested: list[tuple[str, str | None]] = []

    def target(self, node: str = "n1") -> Target:
        return parse_target(f"{node}=http://127.0.0.1:{self.server_address[1]}/metrics")


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        agent = self.server
        assert isinstance(agent, Agent)
        agent.requested.append((self.path, self.headers["Authorization"]))
        self.send_response(agent.status)
        self.send_header("Content-Length", str(len(agent.page)))
        self.end_headers()
        self.wfile.write(agent.page)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def silent_target() -> Iterator[Target]:
    """Listen, and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield parse_target(f"silent=http://127.0.0.1:{listener.getsockname()[1]}")


def make(pages: Pages, *targets: Target, timeout: float = 10.0) -> AgentScrapes:
    return AgentScrapes(targets, pages, timeout_seconds=timeout, wall_clock=lambda: 42.0)


def test_pages_are_recorded_under_the_name_of_their_node(agent: Agent) -> None:
    pages = Pages()
    with closing(make(pages, agent.target("n7"))) as scrapes:
        scrapes.scrape_all()
    assert [(42.0, PAGE.decode(), "n7")] == pages.kept
    assert [("/metrics", None)] == agent.requested
    assert {"good": 1} == scrapes.counts
    assert [] == list(scrapes.problems())


def test_each_agent_gets_its_own_token(agent: Agent, tmp_path: Path) -> None:
    for node in ("n1", "n2"):
        (tmp_path / node).write_text(f"secret-of-{node}\n")
    targets = (agent.target("n1"), agent.target("n2"), agent.target("n3"))
    tokens = {target: TokenFile(tmp_path / target.nodes[0]) for target in targets[:2]}
    with closing(AgentScrapes(targets, Pages(), timeout_seconds=10.0, token_files=tokens)) as scrapes:
        scrapes.scrape_all()
    assert {"Bearer secret-of-n1", "Bearer secret-of-n2", None} == {token for _, token in agent.requested}


def test_what_an_agent_says_about_other_nodes_is_reported_once(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    agent.page = PAGE + b'jobs_cores{slurm_job="1",slurm_node="other"} 4\n'
    with closing(make(Pages(), agent.target())) as scrapes:
        scrapes.scrape_all()
        scrapes.scrape_all()
        (sentence,) = scrapes.problems()
        assert sentence.startswith("1 of 1 node agents reported nodes or metrics that are not theirs")
        assert ["n1"] == [vars(record)["fields"]["nodes"] for record in caplog.records if "beyond" in record.message]
        assert {"good": 2} == scrapes.counts
        agent.page = PAGE
        scrapes.scrape_all()
    assert [] == list(scrapes.problems())


def test_a_silent_agent_costs_only_its_own_page(agent: Agent) -> None:
    pages = Pages()
    with silent_target() as silent, closing(make(pages, silent, agent.target(), timeout=2.0)) as scrapes:
        scrapes.scrape_all()
    assert ["n1"] == [node for _, _, node in pages.kept]
    assert {"good": 1, "failed": 1} == scrapes.counts
    (sentence,) = scrapes.problems()
    assert sentence.startswith("1 of 2 node agents could not be scraped: ")


@pytest.mark.parametrize(
    ("status", "page", "told"),
    [
        (401, b"", "see --up.bearer-token-file"),
        (500, b"", "it answered 500"),
        (200, b"\xff\xfe", "not UTF-8"),
        (200, b"broken", "it has no end"),
    ],
)
def test_a_bad_answer_is_reported(agent: Agent, status: int, page: bytes, told: str) -> None:
    agent.status, agent.page = status, page
    with closing(make(Pages(), agent.target())) as scrapes:
        scrapes.scrape_all()
    (sentence,) = scrapes.problems()
    assert told in sentence


def test_a_failure_is_logged_once_and_its_end_too(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), closing(make(Pages(), agent.target())) as scrapes:
        for status in (500, 503, 200, 200, 200):
            agent.status = status
            scrapes.scrape_all()
    told = [record.message for record in caplog.records if "node agent" in record.message]
    assert ["scraping a node agent failed", "scraping a node agent works again"] == told
    # After the second failure one round is left out.
    assert {"failed": 2, "skipped": 1, "good": 2} == scrapes.counts
    assert [] == list(scrapes.problems())


def test_an_agent_that_is_down_is_scraped_less_and_less_often(agent: Agent) -> None:
    agent.status = 500
    asked: list[int] = []
    with closing(make(Pages(), agent.target())) as scrapes:
        for number in range(60):
            scrapes.scrape_all()
            if len(agent.requested) > len(asked):
                asked.append(number)
    assert [0, 1, 3, 7, 15, 31, 51] == asked


def test_a_bug_in_one_page_does_not_silence_the_others(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    class Buggy(Pages):
        def record_page(self, at_seconds: float, page: str, *, nodes: tuple[str, ...], source: str = "") -> int:
            if nodes == ("bad",):
                raise RuntimeError("bug")
            return super().record_page(at_seconds, page, nodes=nodes, source=source)

    pages = Buggy()
    with closing(make(pages, agent.target("bad"), agent.target("n1"))) as scrapes:
        scrapes.scrape_all()
    assert ["n1"] == [node for _, _, node in pages.kept]
    assert ["scrape failed"] == [record.message for record in caplog.records if record.exc_info]


def test_many_problems_are_reported_in_one_sentence() -> None:
    targets = [parse_target(f"n{number}=http://127.0.0.1:1/{number}") for number in range(5)]
    with closing(make(Pages(), *targets)) as scrapes:
        scrapes.scrape_all()
    (sentence,) = scrapes.problems()
    assert sentence.startswith("5 of 5 ")
    assert sentence.endswith("; and 2 more.")


def test_an_agent_that_is_still_being_scraped_is_skipped(agent: Agent) -> None:
    class Slow(Pages):
        begun, release = threading.Event(), threading.Event()

        def record_page(self, at_seconds: float, page: str, *, nodes: tuple[str, ...], source: str = "") -> int:
            self.begun.set()
            self.release.wait(30)
            return 0

    slow = Slow()
    with closing(make(slow, agent.target())) as scrapes:
        rounds = [threading.Thread(target=scrapes.scrape_all) for _ in range(2)]
        rounds[0].start()
        assert slow.begun.wait(30)
        rounds[1].start()
        deadline = time.monotonic() + 30
        while not scrapes.counts["skipped"] and time.monotonic() < deadline:
            time.sleep(0.01)
        slow.release.set()
        for thread in rounds:
            thread.join()
    assert {"skipped": 1, "good": 1} == scrapes.counts
