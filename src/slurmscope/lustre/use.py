# SPDX-License-Identifier: Apache-2.0
r"""Attribute the use of file systems to jobs, users and programs.

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

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from slurmscope.cluster.squeue import JobOwner

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
    """The parts of a job ID; ``shown`` is the job ID with its array task."""

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


UNKNOWN = "unknown"
"""Label value of an account, user, partition, group, program or file system that is not known."""


class Quantity(enum.StrEnum):
    """What is measured, per second."""

    READ = "read"
    """Bytes read."""
    WRITE = "write"
    """Bytes written."""
    METADATA = "metadata"
    """Operations that transfer no data, such as open, stat and create."""


class Unknown(enum.StrEnum):
    """Why the use cannot be attributed to a user."""

    JOB = "job"
    """Slurm knows no such job, and has not known it recently."""
    USER = "user"
    """The name service knows no such user ID."""
    TEXT = "text"
    """The job ID has no known form, or is missing."""


class UseRate(NamedTuple):
    """One rate as the source reports it; ``target`` is the server volume, where that is known."""

    job_text: str
    filesystem: str
    per_second: float
    target: str = ""
    operation: str = ""


class FilesystemClient(NamedTuple):
    """Name who uses a file system: a job, or a program outside jobs.

    A job has ``account`` and ``partition``, a program has ``program`` and ``group``. ``job`` is the job ID as Slurm
    shows it; it is empty if Slurm does not know the job. ``reason`` is set where the user is unknown.
    """

    user: str
    account: str = ""
    partition: str = ""
    job: str = ""
    program: str = ""
    group: str = ""
    reason: Unknown | None = None


class ClientRate(NamedTuple):
    client: FilesystemClient
    filesystem: str
    per_second: float
    target: str = ""
    operation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemUse:
    """The current rates of all clients.

    A quantity that was never answered, or not for long, is missing from ``rates``. ``answered_at`` is the Unix time of
    its answer. ``problems`` has one sentence for each stage that failed in the latest collection.
    """

    rates: Mapping[Quantity, tuple[ClientRate, ...]] = field(default_factory=dict)
    answered_at: Mapping[Quantity, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class Period(enum.StrEnum):
    """The time that a list of clients covers."""

    NOW = "now"
    """Rates of the moment."""
    DAY = "day"
    """Amounts of the last 24 hours."""


class ClientKind(enum.StrEnum):
    """What a list of clients is made of."""

    JOB = "job"
    USER = "user"
    PROGRAM = "program"


class TopClient(NamedTuple):
    """The use of a file system by one of those that use it most; ``name`` is a job ID, a user or a program."""

    filesystem: str
    period: Period
    kind: ClientKind
    quantity: Quantity
    name: str
    user: str
    account: str
    amount: float
    cluster: str = ""
    """The cluster of a job, where it is known."""


class TopClients(NamedTuple):
    """The clients that use each file system most; ``problems`` has a sentence for each query that failed."""

    clients: tuple[TopClient, ...] = ()
    problems: tuple[str, ...] = ()


NO_CLIENT = FilesystemClient(user=UNKNOWN, reason=Unknown.TEXT)
"""The client of a job ID that has no known form."""

_TARGET = re.compile(r"(?P<filesystem>.+)-(?:OST|MDT)[0-9a-fA-F]{4}", re.DOTALL)

_CLASSES = {
    "open": ("open", "close"),
    "create": ("create", "mknod", "mkdir", "link", "symlink", "migrate"),
    "remove": ("unlink", "rmdir", "destroy"),
    "rename": ("rename", "samedir_rename", "crossdir_rename"),
    "attributes": ("getattr", "setattr", "getxattr", "setxattr", "statfs", "get_info", "set_info"),
    "sync": ("sync",),
}
OPERATION_CLASSES: Mapping[str, str] = {name: key for key, names in _CLASSES.items() for name in names}
OTHER = "other"


class NameService(NamedTuple):
    """Look up the name of a user and of the user's primary group; both return None for an unknown user ID."""

    find_user: Callable[[int], str | None]
    find_group: Callable[[int], str | None]


def filesystem_of(target: str) -> str:
    """Return the file system of a Lustre target: ``work`` of ``work-OST0012``."""
    match = _TARGET.fullmatch(target)
    return match["filesystem"] if match else UNKNOWN


def class_of(operation: str) -> str:
    """Return the class of an operation as Lustre names it, such as ``open`` for close."""
    return OPERATION_CLASSES.get(operation, OTHER)


class Attribution:
    """Attribute rates to clients; each job ID is resolved once."""

    def __init__(self, patterns: JobIdPatterns, owners: Mapping[int, JobOwner], names: NameService) -> None:
        """Take the forms of job IDs, the owners of jobs, and the name service."""
        self._patterns = patterns
        self._owners = owners
        self._names = names
        self._clients: dict[str, FilesystemClient] = {}

    def attribute(self, rates: Iterable[UseRate]) -> tuple[ClientRate, ...]:
        """Return the rates with their clients; a rate that is not above 0 is dropped."""
        known = self._clients
        attributed = []
        for text, filesystem, per_second, target, operation in rates:
            if not per_second > 0:
                continue
            if (client := known.get(text)) is None:
                client = known[text] = self.find_client(text)
            attributed.append(ClientRate(client, filesystem, per_second, target, operation))
        return tuple(attributed)

    def find_client(self, text: str) -> FilesystemClient:
        """Return the client that a job ID names."""
        parsed = self._patterns.parse(text)
        if parsed is None:
            return NO_CLIENT
        user = self._user_of(parsed)
        return self._find_program(parsed, user) if parsed.job is None else self._find_job(parsed, parsed.job, user)

    def _user_of(self, parsed: ParsedJobId) -> str:
        return parsed.user or (self._names.find_user(parsed.uid) if parsed.uid is not None else None) or ""

    def _find_program(self, parsed: ParsedJobId, user: str) -> FilesystemClient:
        program = parsed.program or UNKNOWN
        if not user:
            return FilesystemClient(user=UNKNOWN, program=program, group=UNKNOWN, reason=Unknown.USER)
        group = self._names.find_group(parsed.uid) if parsed.uid is not None else None
        # By position: by name it takes twice as long, for every job ID of every answer.
        return FilesystemClient(user, "", "", "", program, group or UNKNOWN)

    def _find_job(self, parsed: ParsedJobId, job: int, user: str) -> FilesystemClient:
        """Return the client of a job.

        The job ID comes from the environment of a process, which its user can change; the user ID does not. Where the
        two disagree, the user counts.
        """
        owner = self._owners.get(job)
        if owner is not None and (not user or owner.user in (user, str(parsed.uid))):
            return FilesystemClient(owner.user, owner.account, owner.partition, parsed.shown)
        if user:
            return FilesystemClient(user, UNKNOWN, UNKNOWN)
        return FilesystemClient(UNKNOWN, UNKNOWN, UNKNOWN, reason=Unknown.JOB)
