# SPDX-License-Identifier: Apache-2.0
"""Check the HTML report: whole, alone, accessible, and deaf to what users write into names."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.core.tres import Gres
from slurmscope.jobs.render.html import make_chart_css, render_html, render_mail_html
from slurmscope.jobs.render.svg.elements import DARK
from slurmscope.jobs.rule import Severity
from tests.fakes.reports import (
    HOSTILE_NAME,
    make_chart,
    make_finding,
    make_gpu_report,
    make_record,
    make_report,
    make_unmeasured_report,
)

_VOID = {"meta"}


class _Document(HTMLParser):
    """Read a document; its tags must match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert [] == self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag == self._open.pop()

    def handle_data(self, data: str) -> None:
        self.words += data

    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}

    def count(self, name: str) -> int:
        return sum(tag == name for tag, _ in self.tags)


def test_everything_is_in_the_document() -> None:
    document = _Document(render_html(make_gpu_report(), url="https://portal.example.org/jobs/4712"))

    for words in ("Job 4712: relax", "Title of cpu_idle", "#SBATCH --cpus-per-task=2", "2 of 4 cores busy",
                  "mean of 2 GPUs, 2 never used", "The values differ because", "4.66 GiB in 50,000 calls",
                  "GPU use was not measured", "What is shown here."):  # fmt: skip
        assert words in document.words
    # Five gauges with a bar, and two charts.
    assert 7 == document.count("svg")
    assert ("a", {"href": "https://portal.example.org/jobs/4712"}) in document.tags


def test_it_needs_no_script_and_no_other_host() -> None:
    document = _Document(render_html(make_report()))

    assert not document.names() & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not [name for _, attributes in document.tags for name in attributes if name in {"src", "href", "style"}]
    assert "url(" not in render_html(make_report())
    assert "@import" not in render_html(make_report())


def test_headings_go_down_step_by_step_and_tables_have_heads() -> None:
    document = _Document(render_html(make_report()))
    levels = [int(tag[1]) for tag, _ in document.tags if tag in {"h1", "h2", "h3"}]

    assert [0] == [index for index, level in enumerate(levels) if level == 1]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(attributes.get("scope") in {"row", "col"} for tag, attributes in document.tags if tag == "th")
    assert all("img" == attributes.get("role") for tag, attributes in document.tags if tag == "svg")


def test_dark_readers_get_dark_charts() -> None:
    page = render_html(make_report())

    assert "@media (prefers-color-scheme: dark)" in page
    assert f"svg .line-0 {{ stroke: {DARK.lines[0]} }}" in page
    assert str(make_chart_css(DARK)) in page


def test_zero_findings_and_nothing_measured_are_said() -> None:
    document = _Document(render_html(make_unmeasured_report(make_record(gres=(Gres(name="gpu", count=1),)))))

    assert "Too short to judge: the job ran for 30 s, and most rules need 5 min." in document.words
    assert document.words.count("not measured") > 10
    assert "Nodes" not in [words.strip() for words in document.words.splitlines()]


def test_many_nodes_are_summed_up() -> None:
    report = make_report()
    nodes = report.summary.nodes * 30

    assert "30 nodes;" in render_html(replace(report, summary=replace(report.summary, nodes=nodes)))


def test_the_mail_has_no_pictures_and_the_same_words() -> None:
    document = _Document(render_mail_html(make_gpu_report(), url="https://portal.example.org/jobs/4712"))

    assert "svg" not in document.names()
    assert "2 of 4 cores busy" in document.words
    assert "Charts" not in document.words


def test_the_mail_is_short_where_a_portal_has_the_rest() -> None:
    report = make_gpu_report()
    linked = _Document(render_mail_html(report, url="https://portal.example.org/jobs/4712"))

    assert "Slurm's MaxRSS" not in linked.words
    assert "GPU use was not measured" in linked.words
    assert "Slurm's MaxRSS" in _Document(render_mail_html(report)).words


def test_no_caption_repeats_a_heading() -> None:
    assert "caption" not in _Document(render_mail_html(make_gpu_report())).names()


def test_cause_and_finding_are_one_verdict() -> None:
    report = make_report(make_record(state="TIMEOUT"))
    cause = replace(report.findings[0], rule="timed_out", title="Title of the cause")
    document = _Document(render_html(replace(report, findings=(cause, *report.findings[1:]))))

    assert 1 == document.words.count("Title of the cause")
    assert "Slurm ended the job at its time limit" not in document.words


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", " https://x", "//evil.example.org", ""])
def test_an_address_that_is_none_is_no_link(url: str) -> None:
    assert "a" not in _Document(render_html(make_report(), url=url)).names()


def _hostile(name: str) -> str:
    record = make_record(
        name=name, user=name, account=name, partition=name, qos=name, state=name, cluster=name, reason=name,
        nodes=(name,), work_dir=name, submit_line=name, gres=(Gres(name="gpu", model=name, count=1),),
    )  # fmt: skip
    finding = replace(make_finding(), rule=name, title=name, explanation=name, advice=name, suggestion=name)
    chart = replace(make_chart(), name=name, title=name, help=name, reference_label=name)
    chart = replace(chart, lines=tuple(replace(chart.lines[0], label=name) for _ in range(2)))
    report = make_report(record, findings=(finding,), charts=(chart,), missing=(name,))
    node = replace(report.summary.nodes[0], node=name)
    report = replace(report, summary=replace(report.summary, nodes=(node,), program_threads={name: 2.0}))
    return render_html(report, url=f"https://portal.example.org/{name}")


@pytest.mark.parametrize(
    "name",
    [
        HOSTILE_NAME,
        "</title><script>alert(1)</script>",
        "</style><img src=x onerror=alert(1)>",
        '" onmouseover="alert(1)" x=\'',
        "{{ 7 * 7 }}{% raw %}",
        "<!-- -->]]><svg onload=alert(1)>",
        "\ud800\x00\ufffe",
    ],
)
def test_hostile_names_never_become_tags_or_attributes(name: str) -> None:
    harmless, hostile = _Document(_hostile("x")), _Document(_hostile(name))

    assert [tag for tag, _ in harmless.tags] == [tag for tag, _ in hostile.tags]
    assert [set(attributes) for _, attributes in harmless.tags] == [set(attributes) for _, attributes in hostile.tags]
    assert not [char for char in hostile.words if not char.isprintable() and char != "\n"]


@settings(max_examples=10, deadline=None)
@given(st.text(min_size=1, max_size=80))
def test_any_name_leaves_the_document_as_it_is(name: str) -> None:
    harmless, other = _Document(_hostile("x")), _Document(_hostile(name))

    assert [tag for tag, _ in harmless.tags] == [tag for tag, _ in other.tags]


def test_the_severity_is_said_in_words_too() -> None:
    for severity in Severity:
        document = _Document(render_html(make_report(findings=(make_finding(severity=severity),))))
        assert f"{severity.value} Title of cpu_idle" in " ".join(document.words.split())
