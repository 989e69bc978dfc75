# SPDX-License-Identifier: Apache-2.0
"""Hold one group of pushed metrics, and turn it into the content of a file and back.

The content is one line of JSON and the page of the group::

    {"version": 1, "labels": {"job": "backup"}, "pushed_at": 1794801029.5, "failed_at": 0, "ttl_seconds": null}
    # TYPE backup_seconds gauge
    backup_seconds{instance="",job="backup"} 12.5
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from slurmscope.errors import MalformedAnswer
from slurmscope.metrics.parse import parse
from slurmscope.metrics.pushed import PushedFamily, label_family
from slurmscope.metrics.write import Format
from slurmscope.services.inbox.group_path import is_group_label

VERSION = 1
_UNLIMITED = 1 << 30

Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Hold the families of one group; times are seconds since 1970, 0 means never.

    ``ttl_seconds`` is what the last push asked for.
    """

    labels: Mapping[str, str]
    families: Mapping[str, PushedFamily] = field(default_factory=dict)
    pushed_at: float = 0.0
    failed_at: float = 0.0
    ttl_seconds: float | None = None

    @cached_property
    def key(self) -> Key:
        """Return what makes the group differ from others."""
        return key_of(self.labels)

    @cached_property
    def series_count(self) -> int:
        """Return the number of series."""
        return sum(len(family.samples) for family in self.families.values())

    @cached_property
    def size_bytes(self) -> int:
        """Return the size of the content."""
        return len(self.content())

    def expires_at(self, longest_seconds: float) -> float:
        """Return when the group is too old; a group that was only refused counts from then on. 0 means no limit."""
        ttl_seconds = min(self.ttl_seconds or math.inf, longest_seconds or math.inf)
        return (self.pushed_at or self.failed_at) + ttl_seconds

    def content(self) -> bytes:
        """Return the content of the group's file."""
        head = {
            "version": VERSION,
            "labels": dict(self.labels),
            "pushed_at": self.pushed_at,
            "failed_at": self.failed_at,
            "ttl_seconds": self.ttl_seconds,
        }
        page = "".join(family.header + family.lines for family in self.families.values())
        return f"{json.dumps(head)}\n{page}".encode()


def key_of(labels: Mapping[str, str]) -> Key:
    """Return the key of the group with these labels."""
    return tuple(sorted(labels.items()))


def parse_group(content: bytes) -> Group:
    """Parse the content of a group's file; raise MalformedAnswer if it is not one."""
    head, _, page = content.partition(b"\n")
    try:
        found = json.loads(head)
        if found["version"] != VERSION:
            raise MalformedAnswer(f"its version is {found['version']!r}, not {VERSION}")
        labels = {str(name): str(value) for name, value in found["labels"].items()}
        if not all(map(is_group_label, labels)):
            raise MalformedAnswer("a label of the group is not valid")
        parsed = parse(page.decode(), Format.TEXT)
        families = {family.name: label_family(family, labels, _UNLIMITED) for family in parsed}
        ttl_seconds = found["ttl_seconds"]
        return Group(
            labels=labels,
            families=families,
            pushed_at=_time(found["pushed_at"]),
            failed_at=_time(found["failed_at"]),
            ttl_seconds=None if ttl_seconds is None else _time(ttl_seconds),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedAnswer("it is not a file of the push inbox") from error


def _time(found: object) -> float:
    seconds = float(str(found))
    if not math.isfinite(seconds):
        raise ValueError
    return seconds
