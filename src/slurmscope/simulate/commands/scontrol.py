# SPDX-License-Identifier: Apache-2.0
"""Answer like scontrol 22.05 what an exporter asks: ``ping``, and ``show`` of what it knows.

That is assoc_mgr, config, licenses, nodes and reservations. Known options: ``-o -a -d -V``. A record is always printed
on one line, as with ``-o``.
"""

from __future__ import annotations

import getopt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from slurmscope.simulate.commands.listing import Command, CommandResult, ReadColumn, UsageError, refuse, version_answer
from slurmscope.simulate.commands.table import STANDARD_TIME, render_times

if TYPE_CHECKING:
    from slurmscope.simulate.cluster.records import SimulatedCluster

_NAME = "scontrol"
_COLUMNS = (
    "cluster", "controllers", "associations", "qos", "licenses", "reservation_heads", "reservation_starts",
    "reservation_ends", "reservation_tails", "node_heads", "node_times", "node_tails",
)  # fmt: skip
_CONFIG = (
    b"PrivateData             = none",
    b"SLURM_VERSION           = 22.05.8",
)
_PING = "ping"
_SHOW = "show"


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:
    """Return the records of one kind, or one part of every reservation."""
    from slurmscope.simulate.commands.scontrol_records import RECORDS

    return RECORDS[name](cluster)


def respond(read: ReadColumn, argv: Sequence[str], environment: Mapping[str, str]) -> CommandResult:
    """Answer ``ping`` and ``show``; refuse anything else, as the real command refuses unknown subjects."""
    try:
        options, words = getopt.gnu_getopt(list(argv), "oadV", ["oneliner", "all", "details", "version"])
        if any(option in ("-V", "--version") for option, _ in options):
            return version_answer()
        lines = _lines(read, words, environment)
    except (getopt.GetoptError, UsageError) as error:
        return refuse(_NAME, error)
    return 0, b"".join(line + b"\n" for line in lines), b""


def _lines(read: ReadColumn, words: Sequence[str], environment: Mapping[str, str]) -> list[bytes]:
    if list(words) == [_PING]:
        return list(read("controllers"))
    if len(words) < 2 or words[0] != _SHOW:
        raise UsageError(f"invalid keyword: {' '.join(words)}")
    subject = words[1].lower()
    # The real command knows a subject by its first letters.
    if "licenses".startswith(subject):
        return list(read("licenses")) or [b"No licenses configured in Slurm."]
    if "reservations".startswith(subject):
        return _reservations(read, environment)
    if "nodes".startswith(subject):
        return _nodes(read, environment)
    if "config".startswith(subject):
        return [*read("cluster"), *_CONFIG]
    if "assoc_mgr".startswith(subject):
        return _associations(read, words[2:])
    raise UsageError(f"invalid entity: {words[1]} for keyword:show")


def _associations(read: ReadColumn, filters: Sequence[str]) -> list[bytes]:
    flags = next((word.partition("=")[2] for word in filters if word.startswith("flags=")), "assoc,qos")
    lines = [b"Current Association Manager state"]
    if "assoc" in flags:
        lines += [b"Association Records", *read("associations")]
    if "qos" in flags:
        lines += [b"QOS Records", *read("qos")]
    return lines


def _reservations(read: ReadColumn, environment: Mapping[str, str]) -> list[bytes]:
    time_format = environment.get("SLURM_TIME_FORMAT", STANDARD_TIME)
    starts, ends = (render_times(read(f"reservation_{part}"), time_format) for part in ("starts", "ends"))
    parts = zip(read("reservation_heads"), starts, ends, read("reservation_tails"), strict=True)
    lines = [b"%b StartTime=%b EndTime=%b %b" % found for found in parts]
    return lines or [b"No reservations in the system"]


def _nodes(read: ReadColumn, environment: Mapping[str, str]) -> list[bytes]:
    times = render_times(read("node_times"), environment.get("SLURM_TIME_FORMAT", STANDARD_TIME))
    lines = list(map(b"".join, zip(read("node_heads"), times, read("node_tails"), strict=True)))
    return lines or [b"No nodes in the system"]


COMMAND = Command(name=_NAME, columns=_COLUMNS, column=column, respond=respond)
answer = COMMAND.answer
