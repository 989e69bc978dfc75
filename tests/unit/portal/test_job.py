# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from pypdf import PdfReader

from slurmscope.jobs.report import JobReport, SiteSection
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summarize import summarize
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend, make_backend, make_wide_report
from tests.fakes.reports import (
    START,
    make_chart,
    make_finding,
    make_profiled_report,
    make_record,
    make_report,
    make_traced_report,
    make_two_node_report,
    make_unmeasured_report,
)

FILES = (
    "", "?tab=record", "?tab=charts", "?tab=what-if", "/live", "/live?tab=io",
    "/charts.json", "/charts/cpu.svg", "/charts/cpu.csv", "/charts/cpu.json", "/nodes.csv", "/nodes.json",
    "/report.txt", "/report.json", "/report.html", "/report.pdf",
)  # fmt: skip


def test_page_says_which_node_differs_and_draws_it(backend: FakeBackend) -> None:
    backend.archive.save([make_two_node_report()])
    ada = PortalClient(backend.make_app(), "ada")
    page = Page(ada.get("/jobs/4740").text)
    assert "The 2 nodes differ a lot from each other" in page.text
    assert "/jobs/4740/heat/cpu.svg?dark=0" in {image["src"] for image in page.all("img")}
    assert "image/svg+xml" == ada.get("/jobs/4740/heat/cpu.svg").headers["content-type"]
    rows = ada.get("/jobs/4740/heat/cpu.json").json()["rows"]
    assert {0.0} == {row["n2"] for row in rows}
    assert 404 == ada.get("/jobs/4740/heat/nothing.svg").status_code
    assert [] == page.open


def test_parts_of_a_heterogeneous_job_are_linked_and_summed(backend: FakeBackend) -> None:
    records = [make_record(70 + part, het_job_id=70, het_offset=part, cpus=4 * (part + 1)) for part in range(2)]
    backend.archive.save([make_report(record) for record in records])
    page = Page(PortalClient(backend.make_app(), "ada").get("/jobs/70+0").text)
    assert "Parts of the heterogeneous job 70" in page.text
    assert "/jobs/70+1" in page.links
    assert "All 2 parts" in page.text
    assert [] == page.open


def test_tables_of_the_site_have_a_tab_and_are_in_the_files(backend: FakeBackend) -> None:
    racks = SiteSection(id="racks", title="Racks", head=("Node", "Rack"), rows=(("n1", "r <b>7"),))
    backend.archive.save([make_report(make_record(90), site_sections=(racks,))])
    ada = PortalClient(backend.make_app(), "ada")
    page = Page(ada.get("/jobs/90?tab=site").text)

    assert "/jobs/90?tab=site" in Page(ada.get("/jobs/90").text).links
    assert "r <b>7" in page.text
    assert [] == page.open
    assert "r <b>7" in ada.get("/jobs/90/report.txt").text
    pdf = PdfReader(io.BytesIO(ada.get("/jobs/90/report.pdf").content))
    assert "r <b>7" in " ".join(part.extract_text() for part in pdf.pages)


def test_gpus_that_were_not_requested_have_no_gauge(ada: PortalClient) -> None:
    assert "none requested" not in ada.get("/jobs/4711").text


def test_page_of_one_node_has_no_heat_map(ada: PortalClient) -> None:
    assert "heat-maps" not in ada.get("/jobs/4711").text


def test_page_shows_the_job_from_top_to_bottom(ada: PortalClient) -> None:
    page = Page(ada.get("/jobs/4711").text)
    parts = (
        "relax", "4711", "completed", "1 node, 4 cores", "ada", "Title of cpu_idle", "#SBATCH --cpus-per-task=2",
        "Use of requested resources", "2 of 4 cores busy", "of 8 GiB", "2 h of 1 d", "Charts", "Chart of cpu",
        "Slurm record", "All charts", "n1", "Memory by source", "Missing data",
        "GPU use was not measured: the job had none.",
    )  # fmt: skip
    position = 0
    for part in parts:
        assert part in page.text[position:]
        position = page.text.index(part, position)


@pytest.mark.parametrize(
    ("tab", "heading", "part"),
    [
        ("nodes", "Nodes", "Memory by source"),
        ("io", "File I/O", "Written"),
        ("record", "Slurm record", "sbatch --mem=8G -c4 relax.sh"),
        ("what-if", "What if", "Memory per node"),
        ("charts", "All charts", "Chart of memory"),
    ],
)
def test_tabs_are_links_to_pages_without_the_verdict(ada: PortalClient, tab: str, heading: str, part: str) -> None:
    assert f"/jobs/4711?tab={tab}" in Page(ada.get("/jobs/4711").text).links
    page = Page(ada.get(f"/jobs/4711?tab={tab}").text)
    assert [] == page.open
    assert heading in page.text
    assert part in page.text
    assert "/jobs/4711" in page.links
    assert "Title of cpu_idle" not in page.text
    assert [f"/jobs/4711?tab={tab}"] == [link["href"] for link in page.all("a") if link.get("aria-current") == "page"]


@pytest.mark.parametrize("tab", ["gpus", "processes", "nothing", "<b>", "x" * 5000])
def test_tab_that_the_job_does_not_have_is_its_first_page(ada: PortalClient, tab: str) -> None:
    page = Page(ada.get(f"/jobs/4711?tab={quote(tab)}").text)
    assert "Title of cpu_idle" in page.text
    assert "/jobs/4711?tab=gpus" not in page.links


def test_every_number_of_a_gauge_stands_once(ada: PortalClient) -> None:
    assert 1 == Page(ada.get("/jobs/4711").text).text.count("2 h of 1 d")


def test_links_have_unique_names(ada: PortalClient) -> None:
    for tab in ("", "?tab=charts"):
        named: dict[str, set[str | None]] = {}
        for link in Page(ada.get(f"/jobs/4711{tab}").text).all("a"):
            if "aria-label" in link:
                named.setdefault(str(link["aria-label"]), set()).add(link["href"])
        assert [] == [name for name, addresses in named.items() if len(addresses) > 1]
    assert {"CSV: Chart of cpu", "JSON: Chart of cpu", "CSV: Chart of memory"} <= set(named)


def test_every_element_of_the_page_is_closed(ada: PortalClient) -> None:
    assert [] == Page(ada.get("/jobs/4711").text).open


def test_page_needs_no_inline_script_or_style(ada: PortalClient) -> None:
    page = Page(ada.get("/jobs/4720").text)
    assert all(script.get("src", "").startswith("/static/") for script in page.all("script"))  # type: ignore[union-attr]
    assert [] == page.all("style")
    assert [] == [attrs for _, attrs in page.elements if any(key == "style" or key.startswith("on") for key in attrs)]


def test_chart_of_a_finding_is_marked(ada: PortalClient) -> None:
    figures = {attrs["id"]: attrs["class"] for attrs in Page(ada.get("/jobs/4711").text).all("figure")}
    assert {"chart-cpu": "chart marked-critical", "chart-memory": "chart marked-warning"} == figures


def test_of_several_charts_of_a_finding_the_first_is_marked(backend: FakeBackend) -> None:
    made = make_report(make_record(4790))
    charts = (make_chart("cpu"), make_chart("user_system"), make_chart("runnable"))
    backend.archive.save([replace(made, charts=charts, findings=(make_finding(),))])
    page = Page(PortalClient(backend.make_app(), "ada").get("/jobs/4790").text)

    assert ["chart marked-critical"] == [
        attrs["class"] for attrs in page.all("figure") if "marked" in str(attrs.get("class"))
    ]


def test_chart_has_a_table_of_twenty_rows(ada: PortalClient) -> None:
    text = Page(ada.get("/jobs/4711").text).text
    assert "Chart of cpu, 20 of 241 points" in text
    assert "2026-09-21 14:13:20 UTC" in text
    assert "2026-09-21 16:13:20 UTC" in text


def test_browser_without_scripts_gets_images(ada: PortalClient) -> None:
    page = Page(ada.get("/jobs/4711").text)
    images = [attrs["src"] for attrs in page.all("img") if "/charts/" in (attrs["src"] or "")]
    assert ["/jobs/4711/charts/cpu.svg?dark=0", "/jobs/4711/charts/memory.svg?dark=0"] == images
    root = ET.fromstring(ada.get(str(images[0])).content)
    assert "{http://www.w3.org/2000/svg}svg" == root.tag


def test_page_says_that_there_are_no_findings(backend: FakeBackend, ada: PortalClient) -> None:
    backend.archive.save([make_report(make_record(1), findings=())])
    page = Page(ada.get("/jobs/1").text)
    assert "No findings" in page.text
    assert 1 == len([attrs for attrs in page.all("section") if "verdict fine" in str(attrs.get("class"))])


def test_failed_job_without_findings_is_not_shown_as_fine(backend: FakeBackend, ada: PortalClient) -> None:
    backend.archive.save([make_report(make_record(1, state="FAILED", exit_code=1), findings=())])
    page = Page(ada.get("/jobs/1").text)
    assert "The job ended with exit code 1" in page.text
    assert [] == [attrs for attrs in page.all("section") if "verdict fine" in str(attrs.get("class"))]


def test_charts_cover_the_whole_run(ada: PortalClient) -> None:
    (charts,) = [attrs for attrs in Page(ada.get("/jobs/4711").text).all("div") if attrs.get("class") == "charts"]
    assert 7200 == int(charts["data-to"] or 0) - int(charts["data-from"] or 0)


@pytest.mark.parametrize(
    ("ratio", "rating"), [(0.05, "critical"), (0.3, "warning"), (0.5, "fine"), (0.9, "fine"), (0.97, "warning")]
)
def test_nearly_exhausted_memory_is_not_shown_as_good(ratio: float, rating: str) -> None:
    report = make_report(make_record(1))
    memory = replace(
        report.summary.memory, requested_bytes=1000, working_peak_bytes=1000.0 * ratio, slurm_peak_bytes=None
    )
    backend = make_backend()
    backend.archive.save([replace(report, summary=replace(report.summary, memory=memory))])
    page = Page(PortalClient(backend.make_app(), "ada").get("/jobs?name=relax").text)
    bars = [str(attrs["class"]) for attrs in page.all("svg") if str(attrs.get("class")).startswith("bar ")]
    # One job, whose bars are those of CPU, memory and time.
    assert ["bar warning", f"bar {rating}", "bar unrated"] == bars[-3:]


def test_unmeasured_job_shows_no_zero(backend: FakeBackend, ada: PortalClient) -> None:
    backend.archive.save([make_unmeasured_report(make_record(2))])
    page = Page(ada.get("/jobs/2").text)
    assert "not measured" in page.text
    assert "0 %" not in page.text
    assert "No data for charts." in page.text


def test_running_job_is_updated_every_thirty_seconds(ada: PortalClient) -> None:
    live = next(attrs for attrs in Page(ada.get("/jobs/4720").text).all("div") if attrs.get("id") == "live")
    assert ("/jobs/4720/live", "every 30s") == (live["hx-get"], live["hx-trigger"])


def test_ended_job_is_not_updated(ada: PortalClient) -> None:
    page = Page(ada.get("/jobs/4711").text)
    assert not any("hx-get" in attrs for _, attrs in page.elements)
    assert not any("htmx" in (attrs.get("src") or "") for attrs in page.all("script"))


def test_update_has_both_parts_and_nothing_else(ada: PortalClient) -> None:
    page = Page(ada.get("/jobs/4720/live").text)
    ids = [attrs["id"] for attrs in page.all("div") if "id" in attrs]
    assert ["live", "live-more"] == ids
    assert [] == page.all("html") + page.all("figure")


def test_live_job_is_shown_while_the_archive_is_unreachable(backend: FakeBackend, ada: PortalClient) -> None:
    backend.live["77"] = make_report(make_record(77, state="RUNNING", end_seconds=None, restarts=1))
    backend.archive.is_down = True
    backend.failures = ("The archive is unreachable.",)
    answer = ada.get("/jobs/77")
    assert 200 == answer.status_code
    assert "The archive is unreachable." in Page(answer.text).text


# Slurm 22.05 does not report restarts.
@pytest.mark.parametrize("restarts", [1, None])
def test_runs_of_a_requeued_job_are_listed(backend: FakeBackend, ada: PortalClient, restarts: int | None) -> None:
    first = make_record(9, state="REQUEUED", submit_seconds=START)
    second = make_record(9, restarts=restarts, submit_seconds=START + 8000, start_seconds=START + 9000)
    backend.archive.save([make_report(first), make_report(second)])
    text = Page(ada.get("/jobs/9?tab=record").text).text
    assert "Runs of this job" in text
    assert "requeued" in text


def test_id_of_an_array_redirects_to_the_array(ada: PortalClient) -> None:
    answer = ada.get("/jobs/4800")
    assert (303, "/arrays/4800") == (answer.status_code, answer.headers["location"])


def test_task_of_an_array_links_to_it(ada: PortalClient) -> None:
    assert "/arrays/4800" in Page(ada.get("/jobs/4800_3").text).links


@pytest.mark.parametrize("file", FILES)
def test_inaccessible_and_absent_jobs_are_alike_in_every_format(ada: PortalClient, file: str) -> None:
    inaccessible, absent = ada.get(f"/jobs/4712{file}"), ada.get(f"/jobs/99999{file}")
    assert 404 == inaccessible.status_code == absent.status_code
    assert absent.text.replace("Job 99999 ", "Job 4712 ") == inaccessible.text
    kept = {"content-length", "etag"}
    assert [{key: value for key, value in answer.headers.items() if key not in kept} for answer in (absent,)] == [
        {key: value for key, value in answer.headers.items() if key not in kept} for answer in (inaccessible,)
    ]


@pytest.mark.parametrize("file", FILES)
def test_owner_gets_every_format(ada: PortalClient, file: str) -> None:
    assert 200 == ada.get(f"/jobs/4711{file}").status_code


@pytest.mark.parametrize(
    "path", ["/jobs/12abc", "/jobs/1.5", "/jobs/%00", "/jobs/1'--", "/jobs/4711/nodes.exe", "/jobs/4711/report.exe",
             "/jobs/4711/charts/none.svg", "/jobs/4711/charts/cpu.exe", "/jobs/4711_", "/jobs/99999999999", "/jobs/٣"]
)  # fmt: skip
def test_invalid_id_is_not_found(ada: PortalClient, path: str) -> None:
    assert 404 == ada.get(path).status_code


def test_json_has_the_charts_and_gaps_are_null(ada: PortalClient) -> None:
    charts = json.loads(ada.get("/jobs/4711/charts.json").content)["charts"]
    assert ["cpu", "memory"] == [chart["name"] for chart in charts]
    cpu = charts[0]
    assert (241, 4.0, None) == (len(cpu["times"]), cpu["reference"], cpu["lines"][0]["values"][105])


def test_many_lines_are_reduced_to_highest_median_and_lowest(backend: FakeBackend, ada: PortalClient) -> None:
    backend.archive.save([make_wide_report()])
    lines = json.loads(ada.get("/jobs/5000/charts.json").content)["charts"][0]["lines"]
    assert ["lowest of 64", "median of 64", "highest of 64"] == [line["label"] for line in lines]


def test_csv_of_a_chart_has_all_points(ada: PortalClient) -> None:
    rows = list(csv.reader(io.StringIO(ada.get("/jobs/4711/charts/cpu.csv").text)))
    assert ["time_seconds", "n1", "time"] == rows[0]
    assert 242 == len(rows)
    assert "" == rows[106][1]


def test_csv_of_nodes_has_units_in_its_columns(ada: PortalClient) -> None:
    (row,) = csv.DictReader(io.StringIO(ada.get("/jobs/4711/nodes.csv").text))
    assert ("n1", "14400.0", "") == (row["node"], row["cpu_seconds"], row["gpu_utilization"])


def test_pdf_file_name_has_the_job_id(ada: PortalClient) -> None:
    answer = ada.get("/jobs/4711/report.pdf")
    assert ("application/pdf", 'attachment; filename="job-4711.pdf"') == (
        answer.headers["content-type"], answer.headers["content-disposition"],
    )  # fmt: skip
    assert "4711" in PdfReader(io.BytesIO(answer.content)).pages[0].extract_text()


def test_html_report_is_downloaded_instead_of_shown(ada: PortalClient) -> None:
    assert ada.get("/jobs/4711/report.html").headers["content-disposition"].startswith("attachment;")


def test_staff_access_is_audited(backend: FakeBackend) -> None:
    app = backend.make_app()
    PortalClient(app, "sue").get("/jobs/4711/report.pdf")
    PortalClient(app, "ada").get("/jobs/4711/report.pdf")
    PortalClient(app, "cora").get("/jobs/4711/report.pdf")
    assert [("sue", "/jobs/{shown_id}/report.{format}", "job 4711")] == backend.audited


def test_coordinator_sees_jobs_of_the_account(backend: FakeBackend) -> None:
    assert 200 == PortalClient(backend.make_app(), "cora").get("/jobs/4711").status_code


def test_table_of_many_nodes_is_cut(backend: FakeBackend, ada: PortalClient) -> None:
    backend.archive.save([make_wide_report(nodes=130)])
    page = Page(ada.get("/jobs/5000").text)
    assert "30 more nodes in the files." in page.text
    assert 131 == len(ada.get("/jobs/5000/nodes.csv").text.splitlines())


def test_worst_finding_of_a_subject_is_shown_on_its_chart(backend: FakeBackend, ada: PortalClient) -> None:
    report = make_report(make_record(8))
    mild = replace(report.findings[0], severity=Severity.INFO, rule="cpu_mild")
    backend.archive.save([replace(report, findings=(*report.findings, mild))])
    figures = {attrs["id"]: attrs["class"] for attrs in Page(ada.get("/jobs/8").text).all("figure")}
    assert "chart marked-critical" == figures["chart-cpu"]


def test_job_with_gpus_has_them_in_every_table(backend: FakeBackend) -> None:
    text = Page(PortalClient(backend.make_app(), "bob").get("/jobs/4712").text).text
    assert "1 node, 4 cores, 2 GPUs" in text
    assert "mean of 2 GPUs, 2 never used" in text


def test_pending_job_shows_requested_resources_only(backend: FakeBackend) -> None:
    record = make_record(8, state="PENDING", start_seconds=None, end_seconds=None, nodes=(), cpu_seconds=None)
    backend.live["8"] = JobReport(summary=summarize(record, Measured(), now_seconds=START), made_seconds=START)
    text = Page(PortalClient(backend.make_app(), "ada").get("/jobs/8").text).text
    assert "Time limit 1 d" in text
    assert "Memory 8 GiB" in text
    assert "from Slurm accounting" not in text
    assert "not measured" not in text


def test_number_from_accounting_names_its_source(backend: FakeBackend, ada: PortalClient) -> None:
    report = make_report(make_record(7))
    cpu = replace(report.summary.cpu, time=replace(report.summary.cpu.time, coverage=None))
    backend.archive.save([replace(report, summary=replace(report.summary, cpu=cpu))])
    assert "from Slurm accounting" in Page(ada.get("/jobs/7").text).text


def test_page_shows_traced_processes_and_where_they_disagree() -> None:
    backend = make_backend([make_traced_report(), make_report()])
    page = Page(PortalClient(backend.make_app(), "ada").get("/jobs/4713?tab=processes").text)

    for words in ("Traced processes", "solver", "30 min", "10 more with less CPU time.", "50 % less than the 4 h"):
        assert words in page.text
    assert [] == page.open
    assert "Processes" not in Page(PortalClient(backend.make_app(), "ada").get("/jobs/4711").text).text


def test_page_shows_slurms_samples_beside_those_of_the_agents() -> None:
    backend = make_backend([make_profiled_report(), make_report()])
    page = Page(PortalClient(backend.make_app(), "ada").get("/jobs/4714?tab=processes").text)

    for words in ("Slurm's own samples", "all 2", "412 W", "30 more tasks", "3 h measured by the node agents"):
        assert words in page.text
    assert [] == page.open
    assert "Processes" not in Page(PortalClient(backend.make_app(), "ada").get("/jobs/4711").text).text


@pytest.mark.parametrize("file", FILES)
def test_traced_processes_are_hidden_with_their_job(file: str) -> None:
    backend = make_backend([make_traced_report(command="secret-solver")])
    answer = PortalClient(backend.make_app(), "bob").get(f"/jobs/4713{file}")

    assert 404 == answer.status_code
    assert "secret-solver" not in answer.text


def test_header_for_the_next_run_can_be_copied(ada: PortalClient) -> None:
    page = Page(ada.get("/jobs/4711").text)
    assert "Header for the next run" in page.text
    (button,) = [attrs for attrs in page.all("button") if "data-copy" in attrs]
    # Without scripts there is no button, but the text of this element.
    assert "hidden" in button
    assert 1 == len([attrs for attrs in page.all("code") if attrs.get("id") == button["data-copy"]])
    made = json.loads(ada.get("/api/v2/jobs/4711").text)["resubmission"]
    assert "#SBATCH --cpus-per-task=2" in made["lines"]
    assert all(line in page.text for line in made["lines"])


def test_running_job_has_no_header_for_the_next_run(ada: PortalClient) -> None:
    assert "Header for the next run" not in ada.get("/jobs/4720").text
    assert json.loads(ada.get("/api/v2/jobs/4720").text)["resubmission"] is None


def test_list_says_how_a_job_failed() -> None:
    backend = make_backend()
    failed = make_report(make_record(1, state="FAILED", exit_code=127), findings=())
    backend.archive.save([failed])
    page = PortalClient(backend.make_app(), "ada").get("/jobs?state=FAILED").text

    assert "exit code 127: command not found" in page


def test_what_if_form_is_answered_without_scripts(ada: PortalClient) -> None:
    page = Page(ada.get("/jobs/4711?cores=1&memory=512M&time=60").text)
    # It needed 0.8 GiB and two busy cores for two hours.
    assert "With 512 MiB of memory per node it would have been OOM-killed" in page.text
    assert "With 1 core it would have run for at least" in page.text
    inputs = {attrs["name"]: attrs["value"] for attrs in page.all("input") if "what-if" in str(attrs.get("id"))}
    assert {"cores": "1", "memory": "512M", "time": "60"} == inputs
    (form,) = [attrs for attrs in page.all("form") if attrs.get("aria-label") == "What if"]
    assert ("get", "/jobs/4711#what-if") == (form["method"], form["action"])


def test_what_if_form_refuses_wrong_input(ada: PortalClient) -> None:
    response = ada.get("/jobs/4711?cores=<b>many")
    assert 400 == response.status_code
    assert "Cores must be a whole number from 1 to 1,000,000, such as 4." in Page(response.text).text
    assert "<b>many" not in response.text


def test_running_job_has_no_what_if_form(ada: PortalClient) -> None:
    page = ada.get("/jobs/4720?cores=many")
    assert 200 == page.status_code
    assert "what-if-cores" not in page.text


def test_what_if_is_answered_as_json(ada: PortalClient) -> None:
    answer = json.loads(ada.get("/api/v2/jobs/4711/what-if?memory=512M").text)
    assert "too little" == answer["outcome"]["memory"]["verdict"]
    assert "OOM-killed" in answer["sentences"][0]
    for query, message in (("", "at least one of"), ("?cores=0", "Cores must be"), ("?time=x", "Time limit must be")):
        refused = ada.get(f"/api/v2/jobs/4711/what-if{query}")
        assert 400 == refused.status_code
        assert message in json.loads(refused.text)["error"]
    assert "has not run" in json.loads(ada.get("/api/v2/jobs/4720/what-if?cores=1").text)["error"]
