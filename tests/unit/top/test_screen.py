# SPDX-License-Identifier: Apache-2.0
"""The screen fits any terminal, shows gaps as gaps, and lets no name through unescaped."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.jobs.render.text import measure
from slurmscope.top.jobs import TopGpu, TopJob
from slurmscope.top.sources import PortalSource
from slurmscope.top.view import HELP, Screen, draw
from tests.fakes.reports import HOSTILE_NAME

GIB = 1 << 30
JOB = TopJob(
    job_id="4711",
    user="ada",
    name="relax",
    nodes=("n1",),
    cores_used=15.9,
    cores=16.0,
    memory_bytes=12.0 * GIB,
    limit_bytes=64.0 * GIB,
    read_rate=0.0,
    elapsed_seconds=3600.0,
    time_limit_seconds=14400.0,
    gpus=(
        TopGpu(node="n1", name="0", busy_ratio=0.93, memory_bytes=62.0 * GIB, size_bytes=80.0 * GIB, power_watts=412.0),
    ),
)


def test_row_has_use_of_what_was_allocated() -> None:
    heading, head, row, gpu = draw(Screen(title="node n1", jobs=[JOB]), 120, None)

    assert "node n1: 1 job, 15.9 of 16 cores busy, GPUs 412 W, by cpu" == heading
    assert "JOB USER NAME CORES CPU MEMORY LIMIT MEM TIME OF READ/s WRITE/s" == " ".join(head.split())
    assert "4711 ada relax 15.9/16 99 % 12 GiB 64 GiB 19 % 1 h 25 % 0 B –" == " ".join(row.split())
    assert "  GPU 0  busy 93 %  memory 62 GiB of 80 GiB  412 W" == gpu


def test_columns_are_left_out_from_the_right_before_any_is_cut() -> None:
    _, head, row, _ = draw(Screen(title="node n1", jobs=[JOB]), 40, None)

    assert "JOB USER NAME CORES CPU" == " ".join(head.split())[:23]
    assert "READ/s" not in head
    assert "15.9/16" in row


def test_more_jobs_than_lines_are_counted() -> None:
    lines = draw(Screen(title="n", jobs=[TopJob(job_id=str(number)) for number in range(30)]), 80, 10)

    assert 10 == len(lines)
    # A heading, a head, six jobs, this line and the keys.
    assert "… 24 more lines; / filters" == lines[-2]
    assert HELP == lines[-1].rstrip()


def test_problem_is_on_the_screen_and_old_numbers_are_not() -> None:
    lines = draw(Screen(title="node n1", problem="http://n1:9798 is unreachable: \x1b[31mno"), 80, 12)

    assert "http://n1:9798 is unreachable: \\u001b[31mno" == lines[1]
    assert "No running jobs." not in lines


def test_long_id_leaves_room_for_the_user() -> None:
    row = draw(Screen(title="n", jobs=[TopJob(job_id="\x1f" * 20, user="ada")]), 40, 8)[2]

    assert ["\\u001f\\u001f\\u001f\\…", "ada"] == row.split()[:2]


def test_small_terminal_says_so() -> None:
    assert ["The terminal is too small: 40 colu…"] == draw(Screen(title="n"), 35, 24)
    assert 1 == len(draw(Screen(title="n"), 80, 3))


@given(
    text=st.text(max_size=50) | st.just(HOSTILE_NAME),
    columns=st.integers(1, 200),
    lines=st.none() | st.integers(1, 40),
    number=st.none() | st.floats(0, 1e18),
    count=st.integers(0, 12),
)
@settings(deadline=None, max_examples=80)
def test_no_name_and_no_size_breaks_the_screen(
    text: str, columns: int, lines: int | None, number: float | None, count: int
) -> None:
    gpu = TopGpu(node=text, name=text, busy_ratio=number, memory_bytes=number, power_watts=number)
    job = TopJob(job_id=text, user=text, account=text, name=text, nodes=(text, "n"), cores_used=number, gpus=(gpu,))
    view = Screen(title="node", jobs=[job] * count, filter=text, prompt=text, problem=text if count % 2 else "")
    drawn = draw(view, columns, lines)

    assert not any(re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]", line) for line in drawn)
    if lines is not None:
        assert len(drawn) <= lines
        assert all(measure(line) <= columns for line in drawn)


def test_heading_of_the_portal_leaves_room_for_its_numbers() -> None:
    view = Screen(title=PortalSource.title, jobs=[replace(JOB, gpus=())] * 20)
    assert draw(view, 80, None)[0].endswith("20 jobs, 318 of 320 cores busy, by cpu")
