# SPDX-License-Identifier: Apache-2.0
"""A report gets the header for the next run, by other runs that its viewer may see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.core.clock import Clock
from slurmscope.jobs.findings import judge
from slurmscope.jobs.report import JobReport, Resubmission
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.resubmission import MAX_RUNS, add_resubmission, add_script, may_have_options
from tests.fakes.archive import FakeArchive
from tests.fakes.reports import GIB, START, make_record, make_report


def run(number: int, peak_bytes: float = 0.8 * GIB, **record: Any) -> JobReport:
    """Make the report of a run of two hours that needed so much of its 8 GiB, with the findings of the rules."""
    base = make_report(make_record(number, submit_seconds=START - 600 - number, **record))
    memory = replace(base.summary.memory, working_peak_bytes=peak_bytes)
    nodes = tuple(replace(node, working_peak_bytes=peak_bytes) for node in base.summary.nodes)
    summary = replace(base.summary, memory=memory, nodes=nodes)
    return replace(base, summary=summary, findings=judge(summary))


def suggest(report: JobReport, archive: FakeArchive | None, viewer: Viewer = EVERYTHING) -> Resubmission | None:
    clock = Clock(wall=lambda: START + 86400.0)
    return add_resubmission(archive, WaitingTimesCache(archive, clock), viewer, report).resubmission


def lines(report: JobReport, *others: JobReport, viewer: Viewer = EVERYTHING) -> tuple[str, ...]:
    made = suggest(report, FakeArchive(others), viewer)
    assert made is not None
    return made.lines


def test_header_is_made_without_an_archive() -> None:
    made = suggest(run(1), None)
    assert made is not None
    # 2.1 busy cores on 2, 0.8 GiB x 1.2 up to 1 GiB, 2 h x 2.1 / 2 x 1.5 = 3.15 h up to 3.5 h.
    assert ("#SBATCH --cpus-per-task=2", "#SBATCH --mem=1G", "#SBATCH --time=03:30:00") == made.lines
    assert made.wait is None


def test_header_changes_the_options_of_the_script() -> None:
    report = run(1, submit_line="sbatch relax.sh", requested_cpus=4)
    script = "#!/bin/sh\n#SBATCH --ntasks=4 --mem-per-cpu=2G\n#SBATCH --time-min=10:00:00 -t1-0\nsrun ./relax\n"
    known = add_script(report, script, judge)
    made = suggest(known, None)
    assert made is not None
    # 2.1 busy cores on 2; 0.8 GiB x 1.2 for two cores; no time below --time-min.
    assert ("#SBATCH --ntasks=2", "#SBATCH --mem-per-cpu=512M", "#SBATCH --time=10:00:00") == made.lines
    assert ["4", "2G", "1-0"] == [change.submitted for change in made.changes]
    assert "" == made.note
    # Without the script, the option for cores is unknown, so that all are kept, and --mem may be the wrong option.
    without = suggest(report, None)
    assert without is not None
    assert ("#SBATCH --mem=1G", "#SBATCH --time=03:00:00") == without.lines
    assert "If the script sets --mem-per-cpu" in without.note


def test_command_line_overrides_the_script() -> None:
    known = add_script(run(1), "#!/bin/sh\n#SBATCH -c8 --mem-per-cpu=1G --gres=tmpfs:1G\n./relax\n", judge)
    assert {"cpus-per-task": "4", "mem": "8G", "gres": "tmpfs:1G"} == known.record.options
    made = suggest(known, None)
    assert made is not None
    assert "#SBATCH --mem=1G" in made.lines
    assert made.note.startswith("The job was submitted with --cpus-per-task, --mem on the command line")


def test_part_of_a_heterogeneous_job_has_its_part_of_the_script() -> None:
    text = "#!/bin/sh\n#SBATCH --mem=1G\n#SBATCH hetjob\n#SBATCH --mem-per-cpu=2G\n./relax\n"
    part = run(2, submit_line="sbatch x.sh", het_job_id=1, het_offset=1)
    assert {"mem-per-cpu": "2G"} == add_script(part, text, judge).record.options


def test_findings_of_other_thresholds_are_kept() -> None:
    report = run(1)
    assert report.findings == add_script(report, "#SBATCH -c4\n", lambda _summary: ()).findings


def test_only_scripts_of_ended_batch_jobs_matter() -> None:
    expected = {"sbatch a.sh": True, "": True, "srun ./a": False}
    assert expected == {line: may_have_options(run(1, submit_line=line)) for line in expected}
    assert not may_have_options(run(1, state="RUNNING", end_seconds=None))


def test_other_runs_of_the_same_name_and_size_count() -> None:
    # 2.5 GiB x 1.2 = 3 GiB.
    assert "#SBATCH --mem=3G" in lines(run(1), run(2, 2.5 * GIB))
    for other in ({"name": "relax2"}, {"user": "bob"}, {"cpus": 8}, {"node_count": 2}, {"cluster": "other"}):
        assert "#SBATCH --mem=1G" in lines(run(1), run(2, 2.5 * GIB, **other))


def test_run_that_has_not_ended_does_not_count() -> None:
    assert "#SBATCH --mem=1G" in lines(run(1), run(2, 2.5 * GIB, state="RUNNING", end_seconds=None))


def test_runs_that_the_viewer_may_not_see_do_not_count() -> None:
    hidden = run(2, 2.5 * GIB, account="chemistry")
    coordinator = Viewer(name="cora", coordinates=frozenset({"physics"}))
    assert "#SBATCH --mem=1G" in lines(run(1), hidden, viewer=coordinator)
    assert "#SBATCH --mem=3G" in lines(run(1), hidden, viewer=Viewer(name="ada"))


def test_earlier_timeout_counts_with_its_limit() -> None:
    # 8 h x 2.1 / 2 x 1.5 = 12.6 h up to 13 h.
    assert "#SBATCH --time=13:00:00" in lines(run(1), run(2, state="TIMEOUT", time_limit_seconds=8 * 3600))


def test_number_of_runs_is_bounded() -> None:
    made = suggest(run(1), FakeArchive([run(number) for number in range(2, 80)]))
    assert made is not None
    assert MAX_RUNS == made.other_runs


def test_job_without_a_name_has_no_other_runs() -> None:
    assert "#SBATCH --mem=1G" in lines(run(1, name=""), run(2, 2.5 * GIB, name=""))


def test_archive_that_cannot_be_read_costs_only_the_other_runs() -> None:
    archive = FakeArchive([run(2, 2.5 * GIB)])
    archive.is_down = True
    made = suggest(run(1), archive)
    assert made is not None
    assert "#SBATCH --mem=1G" in made.lines


def test_running_job_has_no_header() -> None:
    assert suggest(run(1, state="RUNNING", end_seconds=None), None) is None


def test_waiting_times_of_both_shapes_are_compared() -> None:
    # A day of four cores waited 600 s; three hours of two cores, in the class of up to 4 h and 4 cores, waited 60 s.
    long = [run(number, user="bob", cpus=4) for number in range(10, 30)]
    short = [
        run(number, user="bob", cpus=2, time_limit_seconds=3 * 3600, eligible_seconds=START - 60)
        for number in range(40, 60)
    ]
    made = suggest(run(1), FakeArchive([*long, *short]))
    assert made is not None
    assert made.wait is not None
    assert 600.0 == pytest.approx(made.wait.submitted_seconds, rel=0.2)
    assert 60.0 == pytest.approx(made.wait.suggested_seconds, rel=0.2)
    assert 20 == made.wait.jobs


def test_waiting_times_are_read_once_in_ten_minutes() -> None:
    archive, now = FakeArchive([run(1)]), [0.0]
    cache = WaitingTimesCache(archive, Clock(monotonic=lambda: now[0], wall=lambda: START + 86400.0))
    assert 1 == len(cache.find("lab", "batch"))
    archive.save([run(2, time_limit_seconds=3600)])
    now[0] = 599.0
    assert 1 == len(cache.find("lab", "batch"))
    now[0] = 600.0
    assert 2 == len(cache.find("lab", "batch"))
