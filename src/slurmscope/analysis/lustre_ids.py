# SPDX-License-Identifier: Apache-2.0
r"""Parse the job IDs that Lustre clients send with their requests.

What they contain is chosen by the site (``jobid_var`` and ``jobid_name`` of Lustre)::

    4711          4711_3        4711.batch         a Slurm job, a task of an array, a step
    cp.1001       my.tool.1001                     a program and the ID of its user
    4711:1001:n1                                   jobid_name=%j:%u:%H
    cp.1001@n1.example.org                         jobid_name=%e.%u@%h

Other forms are configured, as a ``jobid_name`` of Lustre or as a regular expression with named groups::

    %e:%u:%g      site-(?P<uid>\d+)-(?P<program>.+)

Users choose the names of their programs. So the cost of a pattern is bounded: texts are short, no group is repeated,
and few parts of a pattern have a variable length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

LENGTH_LIMIT = 64
"""Maximum length of a job ID; Lustre itself has 31."""
PATTERN_LIMIT = 256
REPEATS_LIMIT = 4
"""Maximum number of parts of variable length in one pattern: each multiplies the cost of a text that does not match."""

GROUPS = frozenset({"job", "task", "uid", "user", "program", "gid", "host", "pid"})
_IDENTIFYING = frozenset({"job", "uid", "user"})

_JOB = r"(?P<job>[0-9]{1,10})(?:_(?P<task>[0-9]{1,7}))?(?:\+[0-9]{1,4})?"
# A longer number after the dot is a user ID: a program may be called 4711.
_STEP = r"(?:\.(?:[0-9]{1,3}|batch|extern|interactive))?"
_CODES = {
    "e": "(?P<program>.+)",
    "g": "(?P<gid>[0-9]{1,10})",
    "h": "(?P<host>[A-Za-z0-9._-]+)",
    "H": "(?P<host>[A-Za-z0-9_-]+)",
    "j": f"(?:{_JOB})?",
    "p": "(?P<pid>[0-9]{1,10})",
    "u": "(?P<uid>[0-9]{1,10})",
}
BUILT_IN = ("%j:%u:%H", "%e.%u@%h", "%e.%u")
"""Forms that are tried after the configured ones and plain Slurm job IDs."""

_CODE = re.compile(r"%(.)|([^%]+)|%", re.DOTALL)
_ATOMS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_REPEAT = re.compile(r"[*+]|\{[0-9]*,[0-9]*\}")


class ParsedJobId(NamedTuple):
    """Hold the parts of a job ID; ``shown`` is the job ID with its array task."""

    job: int | None = None
    shown: str = ""
    uid: int | None = None
    user: str = ""
    program: str = ""


class JobIdPatterns:
    """Parse job IDs by several patterns, in order."""

    def __init__(self, configured: Sequence[str] = ()) -> None:
        """Compile the configured patterns; raise ValueError for an invalid one."""
        own = [compile_pattern(text) for text in configured]
        slurm = re.compile(_JOB + _STEP)
        self._patterns = (*own, slurm, *(compile_pattern(text) for text in BUILT_IN))

    def parse(self, text: str) -> ParsedJobId | None:
        """Return the parts of a job ID; None if no pattern matches, or without anything that identifies a user."""
        if len(text) > LENGTH_LIMIT:
            return None
        for pattern in self._patterns:
            match = pattern.fullmatch(text)
            if match and (parts := _parts(match.groupdict(""))):
                return parts
        return None


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a ``jobid_name`` of Lustre, or a regular expression with named groups; raise ValueError."""
    if "(?P<" in text:
        _check_cost(text)
    else:
        text = _from_codes(text)
    try:
        pattern = re.compile(text, re.ASCII | re.DOTALL)
    except re.error as error:
        raise ValueError(f"{text!r} is not a valid Python regular expression: {error}") from error
    if unknown := sorted(pattern.groupindex.keys() - GROUPS):
        raise ValueError(f"{text!r} has the unknown group {unknown[0]!r}; use {', '.join(sorted(GROUPS))}")
    if not pattern.groupindex.keys() & _IDENTIFYING:
        raise ValueError(f"{text!r} identifies no job and no user; it needs a group named job, uid or user")
    return pattern


def _from_codes(text: str) -> str:
    """Translate a ``jobid_name``: %e program, %g group ID, %h and %H host, %j job, %p process ID, %u user ID."""
    return "".join(_translate(code) for code in _CODE.finditer(text))


def _translate(found: re.Match[str]) -> str:
    if found[2] is not None:
        return re.escape(found[2])
    if found[1] not in _CODES:
        raise ValueError(f"{found[0]!r} is not a code of Lustre's jobid_name; use %{', %'.join(_CODES)}")
    return _CODES[found[1]]


def _check_cost(text: str) -> None:
    """Reject patterns that could take very long: Python's engine tries every way to divide a text among repeats."""
    if len(text) > PATTERN_LIMIT:
        raise ValueError(f"a pattern of {len(text)} characters is too long; the limit is {PATTERN_LIMIT}")
    plain = _ATOMS.sub("x", text)
    if _REPEATED_GROUP.search(plain):
        raise ValueError(f"{text!r} repeats a group, which can take very long; repeat single characters or classes")
    repeats = len(_REPEAT.findall(plain))
    if repeats > REPEATS_LIMIT:
        raise ValueError(f"{text!r} has {repeats} parts of variable length; the limit is {REPEATS_LIMIT}")


def _parts(groups: Mapping[str, str]) -> ParsedJobId | None:
    find = groups.get
    job, task, uid, user = find("job", ""), find("task", ""), find("uid", ""), find("user", "")
    if not (job or uid or user) or (job and not job.isdecimal()) or (uid and not uid.isdecimal()):
        return None
    shown = f"{job}_{task}" if task else job
    return ParsedJobId(int(job) if job else None, shown, int(uid) if uid else None, user, find("program", ""))


def parse_patterns(items: Iterable[str]) -> tuple[str, ...]:
    """Check patterns and return them as they are; raise ValueError for an invalid one."""
    patterns = tuple(items)
    for text in patterns:
        compile_pattern(text)
    return patterns
