# SPDX-License-Identifier: Apache-2.0
"""Find whether this user sees the jobs of others; readings of jobs fail where PrivateData hides some.

To a user from whom PrivateData hides them, Slurm's commands print an empty list, and no error.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable
from typing import TypeVar

from slurmscope.core.errors import CommandMissing, CommandRefused, SourceError
from slurmscope.slurm.command import RunCommand
from slurmscope.slurm.config import ARGUMENTS, parse_config

Command = tuple[str, tuple[str, ...]]

CONTROLLER: Command = ("scontrol", ARGUMENTS)
"""Prints the PrivateData that squeue obeys."""
SLURMDBD: Command = ("sacctmgr", ("show", "configuration"))
"""Prints the PrivateData that sacct obeys: that of slurmdbd.conf, after that of slurm.conf."""

KNOWN_SECONDS = 600.0
"""How long an answer holds."""
RETRY_SECONDS = 60.0
"""How long the last answer holds if there is no new one."""


class JobVisibility:
    """Check the right of this user to see all jobs, rarely while it has it; safe to use from several threads.

    A right that was seen once holds while it cannot be read: Slurm's daemons keep it too. Without any answer, jobs
    count as hidden.
    """

    def __init__(
        self, run: RunCommand, command: Command, *, user: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the command that prints PrivateData; ``user`` is that of this process by default."""
        self._run = run
        self._command = command
        self._user = user or find_own_user()
        self._clock = clock
        self._was_granted = False
        self._check_at = clock()

    def require(self) -> None:
        """Raise CommandRefused if jobs of others are hidden, or if that was never known."""
        if self._user == "root" or self._clock() < self._check_at:
            return
        try:
            self._was_granted = self._sees_all()
        except CommandMissing:  # jobs come from slurmrestd, under the name in its token
            return
        except SourceError as error:
            if not self._was_granted:
                raise self._refusal(
                    f"it is not known whether PrivateData hides jobs from {self._user}: {error}"
                ) from error
            self._check_at = self._clock() + RETRY_SECONDS
            return
        if not self._was_granted:
            self._check_at = self._clock()
            raise self._refusal(
                f"PrivateData hides the jobs of others from the user {self._user}; make it an operator: "
                f"sacctmgr add user {self._user} account=root adminlevel=operator"
            )
        self._check_at = self._clock() + KNOWN_SECONDS

    def describe(self) -> str:
        """Return what PrivateData hides; raise CommandRefused or another SourceError where ``require`` does."""
        name, arguments = self._command
        private_data = parse_config(self._run(name, arguments)).private_data
        self.require()
        return f"PrivateData hides {', '.join(sorted(private_data)) or 'nothing'}; {self._user} sees all jobs"

    def _sees_all(self) -> bool:
        name, arguments = self._command
        config = parse_config(self._run(name, arguments))
        if "jobs" not in config.private_data or self._user == config.slurm_user:
            return True
        answer = self._run("sacctmgr", ("--noheader", "--parsable2", "show", "user", self._user, "format=AdminLevel"))
        return answer.decode("utf-8", "replace").strip().lower().startswith(("operator", "admin"))

    def _refusal(self, message: str) -> CommandRefused:
        name, arguments = self._command
        return CommandRefused((name, *arguments), message)


def find_own_user() -> str:
    """Return the name of the user that this process runs as; its number if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


T = TypeVar("T")


def require_all_jobs(read: Callable[[], T], visibility: JobVisibility) -> Callable[[], T]:
    """Return a function that reads jobs, and raises CommandRefused unless jobs of others are visible."""

    def read_all() -> T:
        jobs = read()
        visibility.require()
        return jobs

    return read_all


def require_first(visibility: JobVisibility, read: Callable[[], T]) -> Callable[[], T]:
    """Return a function that checks first: for readings that do not return to a time that they have read."""

    def read_all() -> T:
        visibility.require()
        return read()

    return read_all
