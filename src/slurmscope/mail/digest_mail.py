# SPDX-License-Identifier: Apache-2.0
"""Render the weekly digest of a user or an account as text, HTML and mail."""

from __future__ import annotations

from email.message import EmailMessage
from email.policy import Policy

from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.waste import GPU_CORES
from slurmscope.core.units import HOUR_SECONDS, NOT_MEASURED, format_hours, format_ratio, format_seconds, format_some
from slurmscope.jobs.findings import RULES, LossCause, find_state_cause
from slurmscope.jobs.render.energy import describe_energy_sum
from slurmscope.jobs.render.formatting import format_day, show
from slurmscope.jobs.render.html import render_template, safe_url
from slurmscope.jobs.render.resubmission import TITLE
from slurmscope.jobs.render.text import cut, lay_table, wrap
from slurmscope.jobs.rule import MIN_JUDGED_SECONDS
from slurmscope.mail.digest import Digest, DigestFinding, LostHours, Use
from slurmscope.mail.mail import MAIL_WIDTH, start_mail

_CAUSE = 26
"""Characters of a finding in the table of jobs."""


def render_digest_text(digest: Digest, *, url: str = "") -> str:
    """Return the digest as plain text."""
    head, use = _use_table(digest)
    lines = [
        _title(digest),
        "",
        *wrap(_opening(digest), MAIL_WIDTH),
        "",
        *lay_table(head, use, MAIL_WIDTH),
    ]
    if energy := describe_energy_sum(digest, digest.currency):
        lines += ["", *wrap(energy, MAIL_WIDTH)]
    if digest.fixes:
        lines += ["", "What to change first"]
        for number, fix in _numbered_fixes(digest):
            first, *more = wrap(fix, MAIL_WIDTH - 5)
            lines += [f"  {number}. {first}", *(f"     {line}" for line in more)]
    if digest.worst_jobs:
        lines += ["", "Jobs with the most lost hours", *lay_table(*_job_table(digest), MAIL_WIDTH)]
        lines += wrap(order, MAIL_WIDTH) if (order := _describe_order(digest)) else []
    for jobs, header in _headers(digest):
        # In the first column: sbatch ignores indented lines.
        lines += ["", *wrap(jobs, MAIL_WIDTH), *header]
    if url:
        lines += ["", f"More: {show(url)}"]
    if digest.opt_out:
        lines += ["", *_unsubscribe_lines(digest.opt_out)]
    return "\n".join(lines) + "\n"


def render_digest_html(digest: Digest, *, url: str = "") -> str:
    """Return the digest as one HTML document."""
    head, use = _use_table(digest)
    job_head, job_rows = _job_table(digest)
    return render_template(
        "digest.html",
        title=_title(digest),
        opening=_opening(digest),
        use_head=head,
        use_rows=use,
        energy=describe_energy_sum(digest, digest.currency),
        fixes=[line for _, line in _numbered_fixes(digest)],
        job_head=job_head,
        job_rows=job_rows,
        order=_describe_order(digest),
        headers=_headers(digest),
        url=safe_url(url),
        opt_out=show(digest.opt_out),
        opt_out_url=safe_url(digest.opt_out),
    )


def make_digest_mail(digest: Digest, *, sender: str, recipient: str, url: str = "") -> EmailMessage:
    mail = start_mail(sender=sender, recipient=recipient, subject=_title(digest))
    address = safe_url(digest.opt_out)
    if address and address.isascii():
        # Without List-Unsubscribe-Post: mail programs open the page, and nothing changes by opening it.
        mail["List-Unsubscribe"] = _UnsubscribeHeader(f"<{address}>")
    mail.set_content(render_digest_text(digest, url=url))
    mail.add_alternative(render_digest_html(digest, url=url), subtype="html")
    return mail


def _title(digest: Digest) -> str:
    who = f"account {digest.subject}" if digest.is_account else digest.subject
    return show(
        f"Use of the cluster by {who}, {format_day(digest.since_seconds)} to {format_day(digest.until_seconds)}"
    )


def _opening(digest: Digest) -> str:
    if not digest.jobs:
        return "No jobs ended in this period."
    ended = f"{format_some(digest.jobs, 'job')} ended"
    if digest.short_jobs == digest.jobs:
        return f"{ended}. {_short_jobs(digest)}"
    found = f"{digest.jobs_with_findings:,} of them" if digest.jobs_with_findings else "none"
    short = [_short_jobs(digest)] if digest.short_jobs else []
    return " ".join([f"{ended}, {found} with findings.", *map(_format_loss, digest.losses), *short])


def _format_loss(loss: LostHours) -> str:
    """Say how many jobs failed or reached their time limit, and what they held."""
    ending = "failed" if loss.cause is LossCause.FAILED else "reached the time limit"
    hours = _core_and_gpu_hours(loss.core_hours, loss.gpu_hours)
    return f"{format_some(loss.jobs, 'job')} {ending} after {hours}."


def _short_jobs(digest: Digest) -> str:
    """Give the numbers of jobs that were too short, without a judgement."""
    shares = {"CPU": digest.short_cores.ratio, "GPU": digest.short_gpus.ratio}
    known = ", ".join(f"{label} {format_ratio(ratio)}" for label, ratio in shares.items() if ratio is not None)
    text = (
        f"Too short to judge: {format_some(digest.short_jobs, 'job')} of less than "
        f"{format_seconds(MIN_JUDGED_SECONDS)}, which most rules need."
    )
    return f"{text} Used there: {known}." if known else text


class _UnsubscribeHeader(str):
    """Write a header in one line: mail programs do not join the pieces into which a long address is encoded."""

    __slots__ = ()
    name = "List-Unsubscribe"

    def fold(self, *, policy: Policy) -> str:
        """Write the line, as the headers of the email package do."""
        return f"{self.name}: {self}{policy.linesep}"


def _unsubscribe_lines(opt_out: str) -> list[str]:
    """Wrap a sentence, but keep an address in one line so that mail programs make it a link."""
    sentence = f"To stop these digests: {show(opt_out)}"
    return [sentence] if safe_url(opt_out) else wrap(sentence, MAIL_WIDTH)


def _use_table(digest: Digest) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    head = ("", "Allocated h", "Measured h", "Used h", "Share", "Before")
    rows = [_use_row("Cores", digest.cores, digest.cores_before)]
    if digest.gpus.allocated_hours or digest.gpus_before.allocated_hours:
        rows.append(_use_row("GPUs", digest.gpus, digest.gpus_before))
    return head, rows


def _use_row(label: str, use: Use, before: Use) -> tuple[str, ...]:
    used = format_hours(use.used_hours * HOUR_SECONDS) if use.measured_hours else NOT_MEASURED
    allocated, measured = (format_hours(hours * HOUR_SECONDS) for hours in (use.allocated_hours, use.measured_hours))
    return (label, allocated, measured, used, format_ratio(use.ratio), format_ratio(before.ratio))


def _numbered_fixes(digest: Digest) -> list[tuple[int, str]]:
    return [(number, _format_fix(fix)) for number, fix in enumerate(digest.fixes, 1)]


def _format_fix(fix: DigestFinding) -> str:
    hours = _core_and_gpu_hours(fix.lost_core_hours, fix.lost_gpu_hours)
    blocked = (
        f", and blocked {_hours(fix.blocked_core_hours * HOUR_SECONDS)} for others" if fix.blocked_core_hours else ""
    )
    return f"{show(fix.title, 200)}: {format_some(fix.jobs, 'job')} lost {hours}{blocked}"


def _core_and_gpu_hours(core_hours: float, gpu_hours: float) -> str:
    cores = f"{format_hours(core_hours * HOUR_SECONDS)} core-hours"
    return f"{cores} and {format_hours(gpu_hours * HOUR_SECONDS)} GPU-hours" if gpu_hours > 0 else cores


def _job_table(digest: Digest) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    has_clusters = _has_clusters(digest)
    head = ("Job", *(("Cluster",) if has_clusters else ()), "Core h", "GPU h", "CPU", "Why")
    rows = [
        (
            f"{show(row.shown_id, 20)} {show(row.name, 60)}",
            *((show(row.cluster, 20),) if has_clusters else ()),
            _hours(row.lost_core_seconds),
            _hours(row.lost_gpu_seconds),
            format_ratio(row.cpu_ratio),
            _name_cause(row),
        )
        for row in digest.worst_jobs
    ]
    return head, rows


_TITLES = {rule.id: rule.title for rule in RULES}
_LOSE_NO_HOURS = frozenset(
    {"memory_over_requested", "memory_near_limit", "memory_growing", "time_over_requested", "too_short"}
)
"""Rules about memory or time that was requested: they do not say why cores or GPUs were idle."""


def _name_cause(row: JobRow) -> str:
    """Return why the hours of a job were lost: how it ended, or else its worst finding about idle hours."""
    if find_state_cause(row.state) is not None:
        return show(row.state, 20).replace("_", " ").lower()
    rule = next((rule for rule in row.rules if rule not in _LOSE_NO_HOURS), "")
    if rule:
        return cut(show(_TITLES.get(rule, rule.replace("_", " "))), _CAUSE)
    is_gpu = GPU_CORES * (row.lost_gpu_seconds or 0.0) > (row.lost_core_seconds or 0.0)
    return "idle GPUs" if is_gpu else "idle cores"


def _describe_order(digest: Digest) -> str:
    has_gpus = any(row.lost_gpu_seconds for row in digest.worst_jobs)
    return f"In this order, an hour of a GPU counts as {GPU_CORES:g} of a core." if has_gpus else ""


def _headers(digest: Digest) -> list[tuple[str, tuple[str, ...]]]:
    """Return the lines for job scripts, under the jobs that they are for."""
    has_clusters = _has_clusters(digest)

    def name(job: JobRow) -> str:
        return show(f"{job.shown_id} ({job.cluster})" if has_clusters else job.shown_id, 40) + f" {show(job.name, 40)}"

    return [(f"{TITLE} of {', '.join(map(name, header.jobs))}", header.lines) for header in digest.headers]


def _has_clusters(digest: Digest) -> bool:
    return len({row.cluster for row in digest.worst_jobs}) > 1


def _hours(seconds: float | None) -> str:
    return "–" if seconds is None else format_hours(seconds)
