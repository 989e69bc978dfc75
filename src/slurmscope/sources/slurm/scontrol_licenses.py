# SPDX-License-Identifier: Apache-2.0
"""Read the licences that the controller counts.

Releases differ in what follows ``Free=``: ``Reserved`` came with 22.05, ``LastConsumed`` and its
neighbours with 23.02 and for remote licences only.
"""

from __future__ import annotations

from slurmscope.errors import MalformedAnswer
from slurmscope.model.licenses import License, Licenses
from slurmscope.sources.slurm.scontrol_records import cut, parse_whole, split_lines, words

ARGUMENTS = ("--oneliner", "show", "licenses")

_NOTHING = "No licenses configured in Slurm."


def parse_licenses(answer: bytes) -> Licenses:
    """Read one record per line; one in another format is skipped, unless there is no other."""
    lines = split_lines(answer, "licenses")
    if lines == [_NOTHING]:
        return Licenses(licenses=())
    licenses = []
    for line in lines:
        try:
            licenses.append(_parse_license(line))
        except ValueError:
            continue
    if not licenses:
        raise MalformedAnswer("scontrol show licenses: no record is in a known format")
    return Licenses(licenses=tuple(licenses), unreadable_rows=len(lines) - len(licenses))


def _parse_license(line: str) -> License:
    name, rest = cut(line, "LicenseName", "Total")
    fields = words(f"Total={rest}")
    total, used, free = (parse_whole(fields.get(key)) for key in ("Total", "Used", "Free"))
    if total is None or used is None or free is None:
        raise ValueError("the record has no counts")
    return License(
        name=name,
        total=total,
        used=used,
        free=free,
        reserved=parse_whole(fields.get("Reserved")),
        is_remote={"yes": True, "no": False}.get(fields.get("Remote", "")),
        last_consumed=parse_whole(fields.get("LastConsumed")),
        last_deficit=parse_whole(fields.get("LastDeficit")),
        # 0 is what Slurm has before the first word of a licence server.
        updated_timestamp=parse_whole(fields.get("LastUpdate")) or None,
    )
