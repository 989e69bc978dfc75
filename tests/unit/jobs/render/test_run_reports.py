# SPDX-License-Identifier: Apache-2.0
"""The report of a command has right numbers in text, HTML and JSON, and nothing that a command could forge."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from slurmscope.jobs.render.json import render_run_json
from slurmscope.jobs.render.text import ASCII
from slurmscope.jobs.traced_run import Allowance, GpuSample, GpuUse, RunReport, SlurmContext, TreeSample
from slurmscope.run.render import render_run_html, render_run_text
from slurmscope.run.report import make_run_report
from tests.fakes.reports import HOSTILE_NAME, START
from tests.fakes.traced_runs import GIB, make_run, make_sample

USED = (GpuUse("0", GIB, {"busy": 300.0, "energy": 72_000.0}, memory_size_bytes=80 * GIB, model="<NVIDIA>"),)


def report_on(**changed: object) -> RunReport:
    return make_run_report(make_run(**changed), made_seconds=START)


def rows_of(made: RunReport) -> dict[str, str]:
    lines = render_run_text(made, width=100).splitlines()
    return {line[2:17].strip(): line[17:].strip() for line in lines if line.startswith("  ") and line[2:3] != " "}


def test_text_has_the_numbers() -> None:
    rows = rows_of(report_on())

    assert "exit code 0" == rows["State"]
    assert "10 min" == rows["Wall time"]
    assert "10 min (user 7 min 30 s, system 2 min 30 s)" == rows["CPU time"]
    assert "25 % of 4 cores" == rows["CPU efficiency"]
    assert "1 GiB of 4 GiB (25 %; memory of the machine)" == rows["Memory, peak"]
    assert "2 with 8 threads" == rows["Processes, peak"]
    assert "586 KiB in 600 calls; storage 4 KiB" == rows["Read"]


@pytest.mark.parametrize(
    ("changed", "label", "text"),
    [
        ({"exit_signal": 9}, "State", "killed by SIGKILL (signal 9)"),
        ({"exit_signal": 77}, "State", "killed by signal 77"),
        ({"exit_code": 2}, "State", "exit code 2"),
        ({"slurm": SlurmContext(job_id=77)}, "Host", "n1, job 77"),
        ({"peak_resident_bytes": None}, "Memory, peak", "not measured"),
        ({"allowance": Allowance(cores=0.5)}, "Memory, peak", "1 GiB"),
        ({"allowance": Allowance(cores=1.0)}, "CPU efficiency", "100 % of 1 core"),
        ({"processes_left": 2}, "Still running", "2 processes, counted until the command ended"),
        ({"gpu_samples": (GpuSample(START + 600.5, USED),)}, "GPU", "50 % of 1 GPU; memory 1 GiB; 20 Wh"),
        ({"wall_seconds": 59.999}, "Wall time", "60.00 s"),
        ({"samples": (TreeSample(START, 0.0, 0.0, 0, 1, 1),)}, "Read", "not measured"),
    ],
)
def test_text_has_what_differs(changed: dict[str, object], label: str, text: str) -> None:
    assert text == rows_of(report_on(**changed))[label]


def test_idle_cores_are_found_and_time_limits_are_not() -> None:
    made = report_on()

    found = {finding.rule for finding in made.report.findings}
    assert "cpu_idle" in found or "serial_code" in found
    assert not {"time", "nodes"} & {finding.subject.value for finding in made.report.findings}
    assert "WARNING: " in render_run_text(made) or "CRITICAL: " in render_run_text(made)


def test_memory_near_the_limit_is_found() -> None:
    allowance = Allowance(cores=1.0, memory_bytes=int(1.02 * GIB), memory_origin="cgroup")

    assert "memory_near_limit" in {finding.rule for finding in report_on(allowance=allowance).report.findings}


def test_oom_kill_is_found() -> None:
    made = report_on(oom_kills=1, exit_signal=9)

    assert "oom_kill" in {finding.rule for finding in made.report.findings}


def test_busy_run_has_no_findings() -> None:
    text = render_run_text(report_on(allowance=Allowance(cores=1.0), program_threads={"solver": 1}))

    assert "No findings: the measurements show nothing to change." in text


def test_what_was_lost_is_listed() -> None:
    text = render_run_text(report_on(problems=("Not seen.",), losses=("2 of 3 samples were not sent.",)))

    assert "  - Not seen.\n  - 2 of 3 samples were not sent.\n" in text


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_lines_fit(width: int) -> None:
    made = report_on(command=("x" * 500, "ä" * 100))

    assert max(map(len, render_run_text(made, width=width).splitlines())) <= max(40, width)


def test_gpus_have_a_table_in_text_and_html() -> None:
    made = report_on(gpu_samples=(GpuSample(START + 600.5, USED),))

    text, page = render_run_text(made, width=120), render_run_html(made)

    (row,) = [line.split() for line in text.splitlines() if line.startswith("  n1 ")]
    assert ["n1", "0", "50", "%", "1", "GiB", "80", "GiB"] == row[:8]
    assert "Model: <NVIDIA>." in text
    assert "&lt;NVIDIA&gt;" in page
    assert "<NVIDIA>" not in page


def test_curves_can_be_ascii() -> None:
    assert render_run_text(report_on(), marks=ASCII).isascii()


def test_command_cannot_forge_lines_or_markup() -> None:
    made = report_on(command=(HOSTILE_NAME,), host="<b>\n", problems=("<i>",))

    text, page = render_run_text(made, use_color=True), render_run_html(made)

    assert "\x1b[31m" not in text
    assert "\nBcc" not in text
    tags = _tags(page)
    assert not {"script", "b", "i"} & tags
    assert "svg" in tags


def test_html_without_curves_and_findings_is_complete() -> None:
    samples = (make_sample(0, 600),)

    page = render_run_html(report_on(samples=samples, allowance=Allowance(cores=1.0), program_threads={}))

    assert "<h2>Charts</h2>" not in page
    assert "No findings" in page
    assert page.endswith("</html>\n")


def test_report_of_a_command_outside_slurm_does_not_mention_a_job_or_an_allocation() -> None:
    page = render_run_html(report_on(slurm=SlurmContext()))

    assert "How many cores the command kept busy." in page
    assert "usable cores" in page
    for word in ("the job", "each node", "all nodes", "allocated"):
        assert word not in page


def test_html_has_findings_with_their_lines() -> None:
    allowance = Allowance(cores=1.0, memory_bytes=int(1.02 * GIB), memory_origin="cgroup")

    page = render_run_html(report_on(allowance=allowance))

    assert '<span class="warning">warning</span>' in page
    assert "<code>#SBATCH --mem=" in page


def test_json_has_the_keys_of_a_job_report_and_run() -> None:
    plain = json.loads(render_run_json(report_on()))

    assert {
        "run",
        "summary",
        "findings",
        "charts",
        "missing",
        "version",
        "made_seconds",
        "worst",
        "has_warning",
        "earlier_runs",
        "resubmission",
        "site_sections",
        "heat_maps",
        "is_incomplete",
    } == set(plain)
    assert ["/opt/solver", "--input", "a b"] == plain["run"]["command"]


def _tags(page: str) -> set[str]:
    seen: set[str] = set()

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            seen.add(tag)

    Parser().feed(page)
    return seen
