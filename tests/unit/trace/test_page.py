# SPDX-License-Identifier: Apache-2.0
"""Check the page of traced processes: nothing that a user chose reaches it unescaped, and PrivateData is respected."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from html.parser import HTMLParser
from typing import Any

import pytest

from slurmscope.trace.endpoint import PAGES, ROWS_LIMIT, page_response
from slurmscope.trace.samples import RunningJobOwner, TracedProcess, TraceSample
from slurmscope.trace.settings import TraceLimits
from tests.fakes.raw_http import GENEROUS_SECONDS, get, read_all
from tests.fakes.trace_endpoint import ADA, EVE, open_endpoint, token

HOSTILE = "</td><script>alert(1)</script>\"'&"


class Cells(HTMLParser):
    """Collect the cells of each row, as a browser reads them, and every tag."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "a":
            self.links.append(dict(attrs)["href"] or "")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip("\n")


def rendered(processes: tuple[TracedProcess, ...], *query: tuple[str, str]) -> Cells:
    body = page_response(processes, query, is_json=False, has_accounts=True).body
    assert isinstance(body, bytes)
    cells = Cells()
    cells.feed(body.decode())
    return cells


def process(job_id: int = 1, *, host: str = "n1", **values: Any) -> TracedProcess:
    sample = TraceSample(job_id=job_id)._replace(**values)
    return TracedProcess(RunningJobOwner(job_id, 1000, "ada", "physics"), host, "token", sample)


def test_hostile_text_is_shown_as_text() -> None:
    owner = RunningJobOwner(1, 1000, HOSTILE, HOSTILE)
    cells = rendered((TracedProcess(owner, HOSTILE, "token", TraceSample(job_id=1, command=HOSTILE, step=HOSTILE)),))

    assert 5 == cells.rows[1].count(HOSTILE)
    assert not cells.tags & {"script", "img", "link", "iframe"}


def test_every_row_has_a_cell_for_each_heading() -> None:
    cells = rendered((process(pid=2, cpu_percent=99.5, memory_bytes=float(1 << 20)),))

    row = dict(zip(*cells.rows, strict=True))
    assert ("1", "n1", "2", "99.5", "1 MiB", "ada") == (
        row["Job"], row["Host"], row["PID"], row["CPU %"], row["Memory"], row["User"],
    )  # fmt: skip
    assert "" == row["Threads"]


def test_headings_sort_amounts_downwards_and_the_unmeasured_last() -> None:
    processes = (process(1, memory_bytes=1.0), process(2), process(3, memory_bytes=10.0))

    assert ["3", "1", "2"] == [row[0] for row in rendered(processes, ("sort", "mem")).rows[1:]]
    assert ["1", "2", "3"] == [row[0] for row in rendered(processes, ("sort", HOSTILE)).rows[1:]]
    assert "?sort=mem" in rendered(processes).links


def test_one_job_can_be_selected_and_sorted() -> None:
    cells = rendered((process(1), process(2)), ("job_id", "2"))

    assert ["2"] == [row[0] for row in cells.rows[1:]]
    assert "?job_id=2&sort=mem" in cells.links
    assert not any("<" in link or '"' in link for link in rendered((), ("job_id", HOSTILE)).links)


def test_page_is_small_however_many_processes_there_are() -> None:
    cells = rendered(tuple(process(number) for number in range(1, ROWS_LIMIT + 100)))

    assert ROWS_LIMIT + 1 == len(cells.rows)


def test_json_is_served_to_those_who_prefer_it() -> None:
    with open_endpoint() as endpoint:
        endpoint.post({"job_id": ADA.job_id, "pid": 3, "cpus": 5}, credential=token())
        endpoint.post({"job_id": EVE.job_id, "pid": 4}, credential=token(EVE, node="n2"))
        answer = get(endpoint.address, "/trace?job_id=4711", Accept="application/json, text/html;q=0.5")
        html = get(endpoint.address, "/trace", Accept="text/html,application/xhtml+xml,*/*;q=0.8")

    (row,) = json.loads(answer.body)
    assert (4711, "n1", 3, 5.0, None, "ada") == (
        row["job_id"], row["hostname"], row["pid"], row["cpus"], row["mem"], row["username"],
    )  # fmt: skip
    assert "text/html; charset=utf-8" == html.headers["content-type"]
    assert "default-src 'none'" in html.headers["content-security-policy"]


def test_clients_that_do_not_read_hold_few_pages() -> None:
    limits = TraceLimits(processes_per_job=50_000, processes_per_user=50_000)
    with open_endpoint(limits=limits) as endpoint, ExitStack() as stack:
        samples = (TraceSample(ADA.job_id, pid=pid, command="x" * 64) for pid in range(30_000))
        endpoint.store.put([TracedProcess(ADA, "n1", "token", sample) for sample in samples])
        endpoint.owners.refresh()
        silent = []
        for _ in range(PAGES + 3):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(GENEROUS_SECONDS)
            sock.connect((endpoint.address.host, endpoint.address.port))
            sock.sendall(b"GET /trace HTTP/1.0\r\nAccept: application/json\r\n\r\n")
            assert b"HTTP/1.1 200 OK" == sock.recv(15)
            silent.append(sock)
        assert 30_000 == len(json.loads(get(endpoint.address, "/trace", Accept="application/json").body))
        complete = [sock for sock in silent if read_all(sock).endswith(b"]")]

    assert len(complete) <= PAGES


@pytest.mark.parametrize("hidden", [frozenset({"user", "username", "jobid"}), frozenset({"jobid"})])
def test_page_is_hidden_where_private_data_hides_jobs(hidden: frozenset[str]) -> None:
    with open_endpoint(hidden_labels=hidden) as endpoint:
        endpoint.post({"job_id": ADA.job_id, "pid": 3}, credential=token())
        for accept in ("text/html", "application/json"):
            answer = get(endpoint.address, "/trace", Accept=accept)
            assert 403 == answer.status
            assert b"ada" not in answer.body


def test_accounts_are_hidden_where_private_data_hides_them() -> None:
    with open_endpoint(hidden_labels=frozenset({"account"})) as endpoint:
        endpoint.post({"job_id": ADA.job_id, "pid": 3}, credential=token())
        assert b"physics" not in get(endpoint.address, "/trace").body
        assert b"ada" in get(endpoint.address, "/trace").body
