# SPDX-License-Identifier: Apache-2.0
"""Parse which jobs a user wants to see: job IDs, ranges, their own jobs, or their last one.

::

    12   12_3   12+1   100-120   100,103   12_[1-5]   me   last
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.core.units import parse_seconds
from slurmscope.reports.find import is_shown_id
from slurmscope.reports.page_paths import is_cluster
from slurmscope.slurm.states import BASE_STATES

MAX_IDS = 1000
"""Most jobs that a range or a list may name."""
ME, LAST = "me", "last"

_FORMS = "write 12, 12_3 for an array task, 12+1, 100-120, 12_[1-5], me or last"
_RANGE = re.compile(r"(?P<first>[1-9][0-9]{0,9})-(?P<last>[1-9][0-9]{0,9})", re.ASCII)
_TASKS = re.compile(r"(?P<base>[1-9][0-9]{0,9})_\[(?P<tasks>[0-9,:-]{1,1000})\]", re.ASCII)
_TASK_RANGE = re.compile(r"(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9})(?::(?P<step>[1-9][0-9]{0,8}))?)?", re.ASCII)
_COMMA = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChoice:
    """The chosen jobs: IDs as users write them, or the user's own jobs, of which ``is_last`` means the newest."""

    shown_ids: tuple[str, ...] = ()
    is_last: bool = False

    @property
    def is_own(self) -> bool:
        """Return whether the user's own jobs are meant."""
        return not self.shown_ids


def parse_choice(words: Sequence[str]) -> JobChoice:
    """Parse the arguments of the command; without any, the user's own jobs are meant."""
    named = [part for word in words for part in _COMMA.split(word)]
    if not named or named == [ME]:
        return JobChoice()
    if named == [LAST]:
        return JobChoice(is_last=True)
    if own := next((word for word in named if word in {ME, LAST}), ""):
        raise ConfigError(f"{own} cannot be combined with other jobs; call slurmscope report once for each")
    shown_ids: dict[str, None] = {}
    for word in named:
        for shown_id in _expand(word):
            shown_ids[shown_id] = None
            if len(shown_ids) > MAX_IDS:
                raise ConfigError(f"{escape(word, 100)} names more than {MAX_IDS:,} jobs; choose fewer, or use --since")
    return JobChoice(shown_ids=tuple(shown_ids))


def parse_cluster(text: str) -> str:
    """Parse the name of one cluster, in the lower case in which Slurm keeps it."""
    name = text.strip().lower()
    if not is_cluster(name):
        raise ConfigError(f"-M: {escape(text, 100)} is not the name of a cluster; name one")
    return name


def parse_state(text: str) -> str:
    """Parse the state of a job, in any case."""
    state = text.upper()
    if state not in BASE_STATES:
        raise ConfigError(f"--state: {escape(text, 100)} is not a job state; choose from {', '.join(BASE_STATES)}")
    return state


def parse_since(text: str, now_seconds: float) -> int:
    """Parse a duration before now such as 7d, or a date or time in the time zone of this host, as a Unix time."""
    problem = ConfigError(
        f"--since: {escape(text, 100)} is neither a duration such as 12h or 7d nor a past time such as "
        "2026-03-31 or 2026-03-31T12:00"
    )
    try:
        if not text.isdecimal() and text[-1:].isalpha() and "T" not in text:
            since = now_seconds - parse_seconds(text)
        else:
            since = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise problem from None
    if not 0 <= since <= now_seconds:
        raise problem
    return int(since)


def _expand(word: str) -> Iterator[str]:
    if is_shown_id(word):
        yield word
    elif found := _RANGE.fullmatch(word):
        yield from map(str, _numbers(word, int(found["first"]), int(found["last"])))
    elif found := _TASKS.fullmatch(word):
        for part in found["tasks"].split(","):
            yield from (f"{found['base']}_{task}" for task in _tasks(word, part))
    else:
        raise ConfigError(f"{escape(word, 100)} is not a job ID; {_FORMS}")


def _tasks(word: str, part: str) -> range:
    found = _TASK_RANGE.fullmatch(part)
    if found is None:
        raise ConfigError(f"{escape(word, 100)} is not a job ID; {_FORMS}")
    first = int(found["first"])
    return _numbers(word, first, int(found["last"] or first), int(found["step"] or 1))


def _numbers(word: str, first: int, last: int, step: int = 1) -> range:
    if last < first:
        raise ConfigError(f"{escape(word, 100)} is an empty range: {first} is larger than {last}")
    return range(first, last + 1, step)
