# SPDX-License-Identifier: Apache-2.0
"""Check the weekly digest: its sums, its order, and its three forms."""

from __future__ import annotations

import email
import email.policy
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from slurmscope.archive.interface import UseTotal
from slurmscope.archive.job_columns import JobRow
from slurmscope.mail.digest import Digest, DigestSums, SharedHeader, Use, make_digest
from slurmscope.mail.digest_mail import make_digest_mail, render_digest_html, render_digest_text
from tests.fakes.reports import HOSTILE_NAME, START

WAY_OUT = "https://jobs.example.org/users/ada#digest"
WEEK = (START, START + 7 * 86400)


def _total(key: str = "ada", **changed: object) -> UseTotal:
    total = UseTotal(
        key=key, jobs=10, core_seconds=100 * 3600.0, measured_core_seconds=80 * 3600.0, used_core_seconds=20 * 3600.0,
        gpu_seconds=0.0, measured_gpu_seconds=0.0, used_gpu_seconds=0.0, jobs_with_findings=4,
    )  # fmt: skip
    return replace(total, **changed)  # type: ignore[arg-type]


def _row(job_id: int, core_hours: float | None, gpu_hours: float | None = None, name: str = "relax") -> JobRow:
    return JobRow(
        cluster="lab", job_id=job_id, shown_id=str(job_id), array_job_id=None, name=name, user="ada",
        account="physics", partition="batch", state="COMPLETED", submit_seconds=START, start_seconds=START,
        end_seconds=START + 60, run_seconds=60.0, nodes=1, cpus=4, gpus=0, memory_bytes=None, cpu_ratio=0.25,
        memory_ratio=None, gpu_ratio=None, time_ratio=None, core_seconds=240.0,
        wasted_core_seconds=None if core_hours is None else core_hours * 3600,
        wasted_gpu_seconds=None if gpu_hours is None else gpu_hours * 3600, worst=None, rules=(),
    )  # fmt: skip


def _digest(**changed: object) -> Digest:
    sums = DigestSums(
        totals=(
            _total(),
            _total("more", jobs=2, core_seconds=3600.0, measured_core_seconds=0.0, used_core_seconds=0.0),
        ),
        before=(_total(used_core_seconds=40 * 3600.0),),
        rules=tuple(
            _total(f"rule_{index}", jobs=index, unused_core_seconds=(80 - index) * 3600.0) for index in range(5)
        ),
        jobs=(_row(1, 5.0), _row(2, None), _row(3, 2.0, 1.0), _row(4, 0.0)),
    )
    digest = make_digest("ada", WEEK, sums, rule_titles={"rule_0": "Most cores were idle"})
    return replace(digest, **{"opt_out": WAY_OUT, **changed})  # type: ignore[arg-type]


def test_sums_are_in_hours_and_share_is_of_what_was_measured() -> None:
    digest = _digest()

    assert Use(allocated_hours=101.0, measured_hours=80.0, used_hours=20.0) == digest.cores
    assert (0.25, 0.5) == (digest.cores.ratio, digest.cores_before.ratio)
    assert None is digest.gpus.ratio
    assert (12, 8) == (digest.jobs, digest.jobs_with_findings)


def test_worst_jobs_come_first_and_an_idle_gpu_weighs_more_than_a_core() -> None:
    assert [3, 1] == [row.job_id for row in _digest().worst_jobs]


def test_job_that_ran_out_of_memory_lost_all_of_its_hours() -> None:
    # 100 cores for an hour, of which ten were idle.
    killed = replace(_row(1, 10.0), state="OUT_OF_MEMORY", core_seconds=100 * 3600.0)
    lost = _total("failed", jobs=1, core_seconds=100 * 3600.0, gpu_seconds=2 * 3600.0)
    stopped = _total("timeout", jobs=2, core_seconds=7 * 3600.0)
    sums = DigestSums(totals=(_total(),), lost=(lost, stopped), jobs=(_row(2, 20.0), killed))

    text = render_digest_text(make_digest("ada", WEEK, sums))

    assert "1 job failed after 100 core-hours and 2 GPU-hours. 2 jobs reached the time limit after 7 core-hours." in (
        " ".join(text.split())
    )
    assert ["1 relax", "2 relax"] == [line[:7] for line in text.splitlines() if "relax" in line]
    assert ["100", "–"] == next(line.split()[2:4] for line in text.splitlines() if line.startswith("1 relax"))


def test_table_of_jobs_says_why_and_explains_its_order() -> None:
    rows = (
        replace(_row(4711, 5.0, 2.0), rules=("cpu_idle",)),
        replace(_row(4712, 9.0), state="TIMEOUT"),
        _row(4713, 1.0),
    )
    text = render_digest_text(_digest(worst_jobs=rows))

    lines = {line.split()[0]: line for line in text.splitlines() if line[:4] in {"4711", "4712", "4713"}}
    assert lines["4711"].endswith("  Cores were idle")
    assert lines["4712"].endswith("  timeout")
    assert lines["4713"].endswith("  idle cores")
    assert "an hour of a GPU counts as 10 of a core" in text
    assert "counts as" not in render_digest_text(_digest(worst_jobs=rows[1:]))


def test_hours_were_not_lost_by_memory_that_was_not_needed_nor_by_cores_where_gpus_were_idle() -> None:
    rows = (
        replace(_row(4711, 5.0), rules=("memory_over_requested", "core_imbalance")),
        replace(_row(4712, 5.0), rules=("memory_over_requested",)),
        _row(4713, 5.0, 2.0),
    )
    text = render_digest_text(_digest(worst_jobs=rows))

    lines = {line.split()[0]: line for line in text.splitlines() if line[:4] in {"4711", "4712", "4713"}}
    assert "memory" not in lines["4711"].lower()
    assert lines["4712"].endswith("  idle cores")
    assert lines["4713"].endswith("  idle GPUs")


def test_equal_jobs_of_two_clusters_are_distinguished() -> None:
    both = (_row(4711, 5.0), replace(_row(4711, 2.0), cluster="beta"))
    digest = _digest(worst_jobs=both)

    lines = [line.split() for line in render_digest_text(digest).splitlines() if line.startswith(("Job ", "4711 "))]
    page = " ".join(_Tags(render_digest_html(digest)).words.split())

    assert [["Job", "Cluster"], ["4711", "relax", "lab", "5"], ["4711", "relax", "beta", "2"]] == [
        line[:2] if line[0] == "Job" else line[:4] for line in lines
    ]
    assert all(len(line) <= 76 for line in render_digest_text(digest).splitlines())
    assert "JobClusterCore h" in page
    assert "4711 relaxlab5" in page
    assert "4711 relaxbeta2" in page


def test_jobs_of_one_cluster_need_no_column_for_it() -> None:
    assert "Cluster" not in render_digest_text(_digest())
    assert "Cluster" not in render_digest_html(_digest())


def test_at_most_ten_jobs_are_named() -> None:
    sums = DigestSums(totals=(), jobs=tuple(_row(index, float(index)) for index in range(30)))

    assert list(range(29, 19, -1)) == [row.job_id for row in make_digest("ada", WEEK, sums).worst_jobs]


def test_three_fixes_are_named_that_save_most() -> None:
    fixes = _digest().fixes

    assert [("Most cores were idle", 80.0), ("rule 1", 79.0), ("rule 2", 78.0)] == [
        (fix.title, fix.lost_core_hours) for fix in fixes
    ]


def test_a_fix_that_saves_gpus_comes_before_one_that_saves_cores() -> None:
    cpu = _total("cpu_idle", unused_core_seconds=60 * 3600.0)
    gpu = replace(cpu, key="gpu_idle", jobs=1, unused_gpu_seconds=10 * 3600.0)
    digest = make_digest("ada", WEEK, DigestSums(totals=(), rules=(cpu, gpu)))

    assert ["gpu_idle", "cpu_idle"] == [fix.rule for fix in digest.fixes]
    assert "  1. gpu idle: 1 job lost 60 core-hours and 10 GPU-hours" in render_digest_text(digest).splitlines()


def test_the_text_says_it_all_in_76_columns() -> None:
    text = render_digest_text(_digest(), url="https://portal.example.org/users/ada")
    lines = text.splitlines()

    assert "Use of the cluster by ada, 2026-09-21 to 2026-09-28" == lines[0]
    assert "12 jobs ended, 8 of them with findings." == lines[2]
    assert ["Cores", "101", "80", "20", "25", "%", "50", "%"] == lines[5].split()
    assert "  1. Most cores were idle: 0 jobs lost 80 core-hours" in lines
    assert "More: https://portal.example.org/users/ada" in lines
    assert "To stop these digests: https://jobs.example.org/users/ada#digest" == lines[-1]
    assert all(len(line) <= 76 for line in lines)


def test_gpus_are_shown_to_those_who_have_some() -> None:
    with_gpus = _digest(gpus=Use(allocated_hours=10.0))

    assert "\nGPUs " not in render_digest_text(_digest())
    assert "\nGPUs " in render_digest_text(with_gpus)
    assert "not measured" in render_digest_text(with_gpus)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"jobs": 0}, "No jobs ended in this period."),
        ({"jobs_with_findings": 0}, "12 jobs ended, none with findings."),
        (
            {"short_jobs": 2},
            "12 jobs ended, 8 of them with findings. Too short to judge: 2 jobs of less than 5 min, which most",
        ),
        (
            {"jobs_with_findings": 0, "short_jobs": 12, "short_cores": Use(measured_hours=0.2, used_hours=0.0004)},
            "12 jobs ended. Too short to judge: 12 jobs of less than 5 min, which most rules need. Used there: CPU 0.2",
        ),
        (
            {"short_jobs": 1, "short_gpus": Use(measured_hours=0.5, used_hours=0.25)},
            "1 job of less than 5 min, which most rules need. Used there: GPU 50 %.",
        ),
    ],
)
def test_a_good_short_or_empty_week_is_said(changed: dict[str, object], words: str) -> None:
    text = render_digest_text(_digest(**changed, fixes=(), worst_jobs=(), opt_out=""))

    assert words in " ".join(text.split())


def test_seconds_of_a_core_are_not_shown_as_zero_hours() -> None:
    digest = _digest(cores=Use(allocated_hours=0.0167, measured_hours=0.0167, used_hours=0.00003))

    assert "Cores 0.02 0.02 under 0.01 0.2 %" in " ".join(render_digest_text(digest).split())


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += data


def test_html_holds_the_same_and_no_name_becomes_a_tag() -> None:
    plain = _Tags(render_digest_html(_digest(), url="https://portal.example.org/users/ada"))
    hostile = _digest(subject=HOSTILE_NAME, worst_jobs=(_row(3, 2.0, 1.0, HOSTILE_NAME), _row(1, 5.0)))

    assert "Most cores were idle: 0 jobs lost 80 core-hours" in plain.words
    assert 2 == plain.tags.count("a")
    assert plain.tags == _Tags(render_digest_html(hostile, url="https://portal.example.org/users/ada")).tags


def test_a_way_out_in_words_is_no_link() -> None:
    page = _Tags(render_digest_html(_digest(opt_out="answer this mail with the word stop")))

    assert "a" not in page.tags
    assert "To stop these digests: answer this mail with the word stop" in page.words


def test_the_mail_has_both_forms_and_a_way_out() -> None:
    made = make_digest_mail(_digest(is_account=True, subject="physics\r\nBcc: x"), sender="slurm", recipient="ada")
    mail = email.message_from_bytes(made.as_bytes(), policy=email.policy.default)

    assert mail["Subject"].strip().startswith("Use of the cluster by account physics")
    assert None is mail["Bcc"]
    assert "<https://jobs.example.org/users/ada#digest>" == mail["List-Unsubscribe"]
    assert ["text/plain", "text/html"] == [part.get_content_type() for part in mail.iter_parts()]
    assert None is make_digest_mail(_digest(opt_out="stop"), sender="slurm", recipient="ada")["List-Unsubscribe"]


def test_a_long_way_out_stays_in_one_piece() -> None:
    address = f"https://jobs.example.org/{'a' * 150}/users/ada#digest"
    mail = make_digest_mail(_digest(opt_out=address), sender="slurm", recipient="ada")

    assert f"To stop these digests: {address}" in render_digest_text(_digest(opt_out=address)).splitlines()
    assert f"List-Unsubscribe: <{address}>".encode() in mail.as_bytes().split(b"\r\n")


def test_a_way_out_that_no_header_can_carry_is_in_the_digest_only() -> None:
    address = "https://j\u00f6bs.example.org/users/ada#digest"
    mail = make_digest_mail(_digest(opt_out=address), sender="slurm", recipient="ada")

    assert None is mail["List-Unsubscribe"]
    assert address in render_digest_text(_digest(opt_out=address))


def test_fixes_are_wrapped_like_all_lines() -> None:
    fix = replace(_digest().fixes[0], title="Much of the requested memory was not needed", blocked_core_hours=207.0)
    lines = render_digest_text(_digest(fixes=(fix,))).splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("  1. Much"))

    assert lines[first + 1].startswith("     ")
    assert max(map(len, lines)) <= 76


def test_headers_of_several_clusters_name_them() -> None:
    rows = (_row(12, 5.0), replace(_row(12, 4.0), cluster="small"))
    headers = (SharedHeader(jobs=rows, lines=("#SBATCH --mem=1G",)),)

    text = render_digest_text(_digest(worst_jobs=rows, headers=headers))

    assert "Header for the next run of 12 (lab) relax, 12 (small) relax\n#SBATCH --mem=1G\n" in text
