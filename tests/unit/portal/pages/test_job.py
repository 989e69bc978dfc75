# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from pypdf import PdfReader

from slurmscope.analysis.summary import summarise
from slurmscope.model.finding import Severity
from slurmscope.model.report import JobReport
from slurmscope.model.series import Measured
from slurmscope.portal.app import make_app
from tests.fakes.browser import Page, Visitor
from tests.fakes.portal_desk import FakeDesk, make_desk, make_wide_report
from tests.fakes.reports import START, make_record, make_report, make_unmeasured_report

FILES = (
    "", "/live", "/charts.json", "/charts/cpu.svg", "/charts/cpu.csv", "/charts/cpu.json", "/nodes.csv", "/nodes.json",
    "/report.txt", "/report.json", "/report.html", "/report.pdf",
)  # fmt: skip


def test_page_shows_the_job_from_top_to_bottom(ada: Visitor) -> None:
    page = Page(ada.get("/jobs/4711").text)
    parts = (
        "relax", "4711", "completed", "2 h of 1 d asked for", "Findings", "Title of cpu_idle",
        "#SBATCH --cpus-per-task=2", "Used of what was asked for", "2 of 4 cores busy", "Asked for and used", "8 GiB",
        "Memory, three ways", "What Slurm knows", "sbatch --mem=8G -c4 relax.sh", "Over time", "Chart of cpu", "Nodes",
        "n1", "What is not known", "GPU use was not measured: the job had none.",
    )  # fmt: skip
    place = 0
    for part in parts:
        assert part in page.text[place:]
        place = page.text.index(part, place)


def test_every_element_of_the_page_is_closed(ada: Visitor) -> None:
    assert [] == Page(ada.get("/jobs/4711").text).open


def test_page_needs_no_inline_script_or_style(ada: Visitor) -> None:
    page = Page(ada.get("/jobs/4720").text)
    assert all(script.get("src", "").startswith("/static/") for script in page.all("script"))  # type: ignore[union-attr]
    assert [] == page.all("style")
    assert [] == [attrs for _, attrs in page.elements if any(key == "style" or key.startswith("on") for key in attrs)]


def test_chart_of_a_finding_is_marked(ada: Visitor) -> None:
    figures = {attrs["id"]: attrs["class"] for attrs in Page(ada.get("/jobs/4711").text).all("figure")}
    assert {"chart-cpu": "chart marked-critical", "chart-memory": "chart marked-warning"} == figures


def test_chart_has_a_table_of_twenty_rows_beside_it(ada: Visitor) -> None:
    text = Page(ada.get("/jobs/4711").text).text
    assert "Chart of cpu, 20 of 241 points" in text
    assert "2026-09-21 14:13:20 UTC" in text
    assert "2026-09-21 16:13:20 UTC" in text


def test_browser_without_scripts_gets_pictures(ada: Visitor) -> None:
    page = Page(ada.get("/jobs/4711").text)
    pictures = [attrs["src"] for attrs in page.all("img") if "/charts/" in (attrs["src"] or "")]
    assert ["/jobs/4711/charts/cpu.svg?dark=0", "/jobs/4711/charts/memory.svg?dark=0"] == pictures
    root = ET.fromstring(ada.get(str(pictures[0])).content)
    assert "{http://www.w3.org/2000/svg}svg" == root.tag


def test_no_findings_are_said_to_be_none(desk: FakeDesk, ada: Visitor) -> None:
    desk.archive.save([make_report(make_record(1), findings=())])
    page = Page(ada.get("/jobs/1").text)
    assert "No findings" in page.text
    assert 1 == len([attrs for attrs in page.all("p") if attrs.get("class") == "fine"])


def test_failed_job_without_findings_is_not_shown_as_fine(desk: FakeDesk, ada: Visitor) -> None:
    desk.archive.save([make_report(make_record(1, state="FAILED", exit_code=1), findings=())])
    page = Page(ada.get("/jobs/1").text)
    assert "The job failed" in page.text
    assert [] == [attrs for attrs in page.all("p") if attrs.get("class") == "fine"]


def test_charts_reach_over_the_whole_run(ada: Visitor) -> None:
    (charts,) = [attrs for attrs in Page(ada.get("/jobs/4711").text).all("div") if attrs.get("class") == "charts"]
    assert 7200 == int(charts["data-to"] or 0) - int(charts["data-from"] or 0)


@pytest.mark.parametrize(
    ("ratio", "level"), [(0.05, "low"), (0.3, "middle"), (0.5, "high"), (0.9, "high"), (0.97, "low")]
)
def test_memory_that_is_nearly_used_up_is_not_shown_as_good(ratio: float, level: str) -> None:
    report = make_report(make_record(1))
    memory = replace(report.summary.memory, asked_bytes=1000, working_peak_bytes=1000.0 * ratio, slurm_peak_bytes=None)
    desk = make_desk()
    desk.archive.save([replace(report, summary=replace(report.summary, memory=memory))])
    page = Page(Visitor(make_app(desk), "ada").get("/jobs?name=relax").text)
    bars = [str(attrs["class"]) for attrs in page.all("svg") if str(attrs.get("class")).startswith("bar ")]
    assert f"bar {level}" in bars


def test_job_of_which_nothing_was_measured_shows_no_zero(desk: FakeDesk, ada: Visitor) -> None:
    desk.archive.save([make_unmeasured_report(make_record(2))])
    page = Page(ada.get("/jobs/2").text)
    assert "not measured" in page.text
    assert "0 %" not in page.text
    assert "No curves were measured." in page.text


def test_running_job_is_renewed_every_thirty_seconds(ada: Visitor) -> None:
    live = next(attrs for attrs in Page(ada.get("/jobs/4720").text).all("div") if attrs.get("id") == "live")
    assert ("/jobs/4720/live", "every 30s") == (live["hx-get"], live["hx-trigger"])


def test_ended_job_is_left_alone(ada: Visitor) -> None:
    page = Page(ada.get("/jobs/4711").text)
    assert not any("hx-get" in attrs for _, attrs in page.elements)
    assert not any("htmx" in (attrs.get("src") or "") for attrs in page.all("script"))


def test_renewal_has_both_parts_and_nothing_around_them(ada: Visitor) -> None:
    page = Page(ada.get("/jobs/4720/live").text)
    ids = [attrs["id"] for attrs in page.all("div") if "id" in attrs]
    assert ["live", "live-more"] == ids
    assert [] == page.all("html") + page.all("figure")


def test_live_job_is_shown_while_the_archive_is_down(desk: FakeDesk, ada: Visitor) -> None:
    desk.live["77"] = make_report(make_record(77, state="RUNNING", end_seconds=None, restarts=1))
    desk.archive.is_down = True
    desk.missing = ("The archive does not answer.",)
    answer = ada.get("/jobs/77")
    assert 200 == answer.status_code
    assert "The archive does not answer." in Page(answer.text).text


# Slurm 22.05 does not tell how often a job was started again.
@pytest.mark.parametrize("restarts", [1, None])
def test_runs_of_a_requeued_job_are_listed(desk: FakeDesk, ada: Visitor, restarts: int | None) -> None:
    first = make_record(9, state="REQUEUED", submit_seconds=START)
    second = make_record(9, restarts=restarts, submit_seconds=START + 8000, start_seconds=START + 9000)
    desk.archive.save([make_report(first), make_report(second)])
    text = Page(ada.get("/jobs/9").text).text
    assert "Runs of this job" in text
    assert "requeued" in text


def test_number_of_an_array_leads_to_the_array(ada: Visitor) -> None:
    answer = ada.get("/jobs/4800")
    assert (303, "/arrays/4800") == (answer.status_code, answer.headers["location"])


def test_task_of_an_array_links_to_it(ada: Visitor) -> None:
    assert "/arrays/4800" in Page(ada.get("/jobs/4800_3").text).links


@pytest.mark.parametrize("file", FILES)
def test_foreign_job_and_absent_job_are_the_same_in_every_form(ada: Visitor, file: str) -> None:
    foreign, absent = ada.get(f"/jobs/4712{file}"), ada.get(f"/jobs/99999{file}")
    assert 404 == foreign.status_code == absent.status_code
    assert absent.content == foreign.content
    assert dict(absent.headers) == dict(foreign.headers)


@pytest.mark.parametrize("file", FILES)
def test_owner_gets_every_form(ada: Visitor, file: str) -> None:
    assert 200 == ada.get(f"/jobs/4711{file}").status_code


@pytest.mark.parametrize(
    "path", ["/jobs/12abc", "/jobs/1.5", "/jobs/%00", "/jobs/1'--", "/jobs/4711/nodes.exe", "/jobs/4711/report.exe",
             "/jobs/4711/charts/none.svg", "/jobs/4711/charts/cpu.exe", "/jobs/4711_", "/jobs/99999999999", "/jobs/٣"]
)  # fmt: skip
def test_what_is_no_job_is_not_found(ada: Visitor, path: str) -> None:
    assert 404 == ada.get(path).status_code


def test_json_has_the_charts_and_gaps_are_null(ada: Visitor) -> None:
    charts = json.loads(ada.get("/jobs/4711/charts.json").content)["charts"]
    assert ["cpu", "memory"] == [chart["name"] for chart in charts]
    cpu = charts[0]
    assert (241, 4.0, None) == (len(cpu["times"]), cpu["reference"], cpu["lines"][0]["values"][105])


def test_many_lines_are_sent_as_highest_median_and_lowest(desk: FakeDesk, ada: Visitor) -> None:
    desk.archive.save([make_wide_report()])
    lines = json.loads(ada.get("/jobs/5000/charts.json").content)["charts"][0]["lines"]
    assert ["lowest of 64", "median of 64", "highest of 64"] == [line["label"] for line in lines]


def test_csv_of_a_chart_has_every_point(ada: Visitor) -> None:
    rows = list(csv.reader(io.StringIO(ada.get("/jobs/4711/charts/cpu.csv").text)))
    assert ["time_seconds", "n1"] == rows[0]
    assert 242 == len(rows)
    assert "" == rows[106][1]


def test_csv_of_nodes_has_units_in_its_columns(ada: Visitor) -> None:
    (row,) = csv.DictReader(io.StringIO(ada.get("/jobs/4711/nodes.csv").text))
    assert ("n1", "14400.0", "") == (row["node"], row["cpu_seconds"], row["gpu_utilization"])


def test_pdf_is_a_file_with_the_job_in_its_name(ada: Visitor) -> None:
    answer = ada.get("/jobs/4711/report.pdf")
    assert ("application/pdf", 'attachment; filename="job-4711.pdf"') == (
        answer.headers["content-type"], answer.headers["content-disposition"],
    )  # fmt: skip
    assert "4711" in PdfReader(io.BytesIO(answer.content)).pages[0].extract_text()


def test_html_report_is_never_shown_with_the_rights_of_the_portal(ada: Visitor) -> None:
    assert ada.get("/jobs/4711/report.html").headers["content-disposition"].startswith("attachment;")


def test_staff_looking_at_a_foreign_job_is_written_down(desk: FakeDesk) -> None:
    app = make_app(desk)
    Visitor(app, "sue").get("/jobs/4711/report.pdf")
    Visitor(app, "ada").get("/jobs/4711/report.pdf")
    Visitor(app, "cora").get("/jobs/4711/report.pdf")
    assert [("sue", "/jobs/{shown_id}/report.{format}", "job 4711")] == desk.audited


def test_coordinator_sees_jobs_of_the_account(desk: FakeDesk) -> None:
    assert 200 == Visitor(make_app(desk), "cora").get("/jobs/4711").status_code


def test_table_of_many_nodes_is_cut_and_says_so(desk: FakeDesk, ada: Visitor) -> None:
    desk.archive.save([make_wide_report(nodes=130)])
    page = Page(ada.get("/jobs/5000").text)
    assert "30 further nodes: the files have all of them." in page.text
    assert 131 == len(ada.get("/jobs/5000/nodes.csv").text.splitlines())


def test_worst_finding_of_a_subject_marks_its_chart(desk: FakeDesk, ada: Visitor) -> None:
    report = make_report(make_record(8))
    mild = replace(report.findings[0], severity=Severity.INFO, rule="cpu_mild")
    desk.archive.save([replace(report, findings=(*report.findings, mild))])
    figures = {attrs["id"]: attrs["class"] for attrs in Page(ada.get("/jobs/8").text).all("figure")}
    assert "chart marked-critical" == figures["chart-cpu"]


def test_job_with_gpus_has_them_in_every_table(desk: FakeDesk) -> None:
    text = Page(Visitor(make_app(desk), "bob").get("/jobs/4712").text).text
    # 1 % of two GPUs
    assert "GPUs 2 0.02 busy on average" in text
    assert "2 never used" in text


def test_page_of_a_job_that_waits_says_what_was_asked_for_and_nothing_of_use(desk: FakeDesk) -> None:
    record = make_record(8, state="PENDING", start_seconds=None, end_seconds=None, nodes=(), cpu_seconds=None)
    desk.live["8"] = JobReport(summary=summarise(record, Measured(), now_seconds=START), made_seconds=START)
    text = Page(Visitor(make_app(desk), "ada").get("/jobs/8").text).text
    assert "not started, 1 d asked for" in text
    assert "Memory 8 GiB" in text
    assert "from Slurm's accounting" not in text


def test_number_from_accounting_says_so(desk: FakeDesk, ada: Visitor) -> None:
    report = make_report(make_record(7))
    cpu = replace(report.summary.cpu, time=replace(report.summary.cpu.time, coverage=None))
    desk.archive.save([replace(report, summary=replace(report.summary, cpu=cpu))])
    assert "from Slurm's accounting" in Page(ada.get("/jobs/7").text).text
