# SPDX-License-Identifier: Apache-2.0
"""Attribute the use of file systems to jobs, users and programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from slurmscope.analysis.lustre_ids import JobIdPatterns, ParsedJobId
from slurmscope.model.filesystem_use import UNKNOWN, ClientRate, FilesystemClient, Unknown, UseRate
from slurmscope.model.jobs import JobOwner

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
