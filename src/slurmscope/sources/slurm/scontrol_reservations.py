# SPDX-License-Identifier: Apache-2.0
"""Read the reservations of the controller.

The users of a reservation are not read: the lists are long and private. With
``PrivateData=reservations`` an ordinary user gets an empty list.
"""

from __future__ import annotations

from slurmscope.errors import MalformedAnswer
from slurmscope.hostlist import expand_hosts
from slurmscope.model.reservations import Reservation, Reservations
from slurmscope.sources.slurm.scontrol_records import cut, parse_whole, split_lines, words

ARGUMENTS = ("--oneliner", "show", "reservations")

_NOTHING = "No reservations in the system"
_NULL = "(null)"


def parse_reservations(answer: bytes) -> Reservations:
    """Read one record per line; one in another format is skipped, unless there is no other."""
    lines = split_lines(answer, "reservations")
    if lines == [_NOTHING]:
        return Reservations(reservations=())
    reservations = []
    for line in lines:
        try:
            reservations.append(_parse_reservation(line))
        except ValueError:
            continue
    if not reservations:
        raise MalformedAnswer("scontrol show reservations: no record is in a known format")
    return Reservations(reservations=tuple(reservations), unreadable_rows=len(lines) - len(reservations))


def _parse_reservation(line: str) -> Reservation:
    name, rest = cut(line, "ReservationName", "StartTime")
    fields = words(f"StartTime={rest}")
    if fields.get("State") not in ("ACTIVE", "INACTIVE"):
        raise ValueError("the record has no state")
    return Reservation(
        name=name,
        is_active=fields["State"] == "ACTIVE",
        start_timestamp=parse_whole(fields["StartTime"]),
        end_timestamp=parse_whole(fields.get("EndTime")),
        node_count=parse_whole(fields.get("NodeCnt")),
        core_count=parse_whole(fields.get("CoreCnt")),
        nodes=_expand(_text(fields, "Nodes")),
        partition=_text(fields, "PartitionName"),
        flags=tuple(flag for flag in _text(fields, "Flags").split(",") if flag),
    )


def _text(fields: dict[str, str], key: str) -> str:
    value = fields.get(key, "")
    return "" if value == _NULL else value


def _expand(hosts: str) -> tuple[str, ...] | None:
    try:
        return expand_hosts(hosts)
    except ValueError:
        return None
