# SPDX-License-Identifier: Apache-2.0
"""Check the PDF by reading its text back, and pictures by their heads."""

from __future__ import annotations

import io
import struct
from dataclasses import replace

import pytest
from pypdf import PdfReader

from slurmscope.core.errors import OutputError
from slurmscope.jobs.render.pdf import render_chart_png, render_pdf, render_svg_png
from slurmscope.jobs.render.svg.charts import render_use_pie_svg
from tests.fakes.reports import (
    HOSTILE_NAME,
    make_chart,
    make_finding,
    make_gpu_report,
    make_record,
    make_report,
    make_unmeasured_report,
)

PNG = b"\x89PNG\r\n\x1a\n"


def _read(pdf: bytes) -> tuple[PdfReader, str]:
    reader = PdfReader(io.BytesIO(pdf))
    return reader, " ".join(" ".join(page.extract_text() for page in reader.pages).split())


def test_text_of_every_part_can_be_read_back() -> None:
    reader, text = _read(render_pdf(make_gpu_report()))

    for words in ("Job 4712: relax", "CRITICAL Title of cpu_idle", "#SBATCH --cpus-per-task=2", "2 of 4 cores busy",
                  "Chart of cpu", "Chart of memory", "allocated cores 4", "allocated cores 8 GiB",
                  "The values differ because", "Slurm's MaxRSS 512 MiB", "GPU use was not measured"):  # fmt: skip
        assert words in text.replace("’", "'")
    assert "Use of each core" not in text
    assert reader.metadata is not None
    assert "Job 4712: relax" == reader.metadata.title


def test_pages_are_a4_and_numbered() -> None:
    reader, _ = _read(render_pdf(make_report()))

    for number, page in enumerate(reader.pages, 1):
        assert f"page {number} of {len(reader.pages)}" in page.extract_text()
        assert (595, 842) == (round(page.mediabox.width), round(page.mediabox.height))


def test_a_job_of_one_core_has_two_pages() -> None:
    names = ("cpu", "memory", "read", "write", "running_threads", "open_files")
    # Their values change by more than a twentieth of the scale: none is flat.
    charts = tuple(make_chart(name, limit=2.5) for name in (*names, "cpu_split", "cpu_core"))
    reader, text = _read(render_pdf(make_report(make_record(cpus=1, node_count=1), charts=charts)))

    assert len(reader.pages) <= 2
    assert all(f"Chart of {name}" in text for name in names)
    # They show again what another chart shows.
    assert not [name for name in ("cpu_split", "cpu_core") if f"Chart of {name}" in text]
    assert "none requested" not in text


def test_gpus_come_before_the_record_and_the_charts() -> None:
    _, text = _read(render_pdf(make_gpu_report()))

    assert text.index("NVIDIA H200") < text.index("4712 on lab") < text.index("Chart of cpu")


def test_the_same_report_gives_the_same_bytes() -> None:
    assert render_pdf(make_report()) == render_pdf(make_report())


def test_a_job_of_which_nothing_was_measured_has_a_document_too() -> None:
    _, text = _read(render_pdf(make_unmeasured_report(make_record())))

    assert "Too short to judge: the job ran for 30 s, and most rules need 5 min." in text
    assert "CPU – not measured" in text
    assert "Charts" not in text


@pytest.mark.parametrize(
    "name",
    [
        HOSTILE_NAME,
        '#panic("x") *bold* _it_ $x$ @ref <label> [a] `raw` // comment /* \\u{41} https://example.org',
        '#read("/etc/passwd")',
        '= heading\n- item\n#include "x"',
        "\ud800\x00",
        "漢字 🎉 ",
        "y" * 120,
        " ",
    ],
)
def test_nothing_a_user_wrote_is_read_as_markup(name: str) -> None:
    finding = replace(make_finding(), title=name, explanation=name, advice=name, suggestion=name)
    report = make_report(make_record(name=name, work_dir=name, nodes=(name,)), findings=(finding,), missing=(name,))
    chart = replace(make_chart(), title=name, help=name, reference_label=name)
    node = replace(report.summary.nodes[0], node=name)
    report = replace(report, charts=(chart,), summary=replace(report.summary, nodes=(node,)))
    _, text = _read(render_pdf(report))

    assert "root:" not in text
    if name.isascii() and name.isprintable() and name.strip() and len(name) < 200:
        assert name.replace(" ", "") in text.replace(" ", "")


def test_a_chart_becomes_a_picture() -> None:
    png = render_chart_png(make_chart(), width=800, height=320)

    assert PNG == png[:8]
    assert (1200, 480) == struct.unpack(">II", png[16:24])


def test_a_pie_becomes_a_picture() -> None:
    assert PNG == render_svg_png(render_use_pie_svg(make_report()))[:8]


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(OutputError, match="typst could not make the PNG"):
        render_svg_png("no picture")
