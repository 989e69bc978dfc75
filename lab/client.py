# SPDX-License-Identifier: Apache-2.0
"""Run Slurm commands against one lab, as root or as one of its users."""

import contextlib
import os
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

from lab.errors import CommandFailed, LabError
from lab.requirements import SEARCH_PATH
from lab.users import UnixUser, find_user
from lab.waiting import wait_until

COMMAND_SECONDS = 30.0
# Each question is a process of its own, on a machine that has jobs to run.
POLL_SECONDS = 0.2
IDLE = "idle"


class SlurmClient:
    """Speak to the controller and the accounting of one lab."""

    def __init__(self, environment: Mapping[str, str], users_folder: Path) -> None:
        """Take the variables that point at the lab, and the folder that holds the users' working folders."""
        self._environment = dict(environment)
        self._users_folder = users_folder

    def run(self, *argv: str, user: str | None = None, timeout: float = COMMAND_SECONDS, stdin: str = "") -> str:
        """Run a command and give its standard output; raise CommandFailed when it fails or takes too long."""
        someone = UnixUser(name="root", uid=0, gid=0) if user is None else find_user(user)
        try:
            done = subprocess.run(
                argv,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
                env=self._environment_of(someone),
                cwd=self._folder_of(user),
                user=someone.uid,
                group=someone.gid,
                extra_groups=[],
            )
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(argv, None, _text(error.stderr)) from error
        if done.returncode != 0:
            # sacctmgr tells some of its reasons on the standard output.
            raise CommandFailed(argv, done.returncode, done.stderr or done.stdout)
        return done.stdout

    def submit(self, user: str, *sbatch_arguments: str, script: str = "sleep 60") -> int:
        """Submit a batch job as a user and give its id; it starts in the user's working folder of the lab."""
        answer = self.run("sbatch", "--parsable", *sbatch_arguments, user=user, stdin=f"#!/bin/sh\n{script}\n")
        # With several clusters the answer is "id;cluster".
        return int(answer.strip().partition(";")[0])

    def job_states(self, job_id: int) -> frozenset[str]:
        """Give the states of a job (of all its tasks, for an array); none when the controller has forgotten it."""
        answer = self.run("squeue", "--noheader", "--all", "--array", "--states=all", f"--jobs={job_id}", "--format=%T")
        return frozenset(answer.split())

    def wait_state(self, job_id: int, states: Collection[str], *, timeout: float = 120.0) -> None:
        """Wait until the job, with all its tasks, is in one of these states."""

        def has_arrived() -> bool:
            seen = self.job_states(job_id)
            return bool(seen) and seen <= set(states)

        what = f"job {job_id} to become {' or '.join(sorted(states))}"
        try:
            wait_until(has_arrived, what, timeout_seconds=timeout, poll_seconds=POLL_SECONDS)
        except LabError as error:
            raise LabError(f"{error}; it is {', '.join(self.job_states(job_id)) or 'forgotten'}") from error

    def cancel_all(self, *, timeout: float = 120.0) -> None:
        """Cancel all jobs and wait until none is left pending, running or completing."""

        def are_gone() -> bool:
            jobs = set(self.run("squeue", "--noheader", "--all", "--format=%F").split())
            if jobs:
                # A job may end between the two commands; scancel then complains, and squeue has the last word.
                with contextlib.suppress(CommandFailed):
                    self.run("scancel", *sorted(jobs))
            return not jobs

        wait_until(are_gone, "all jobs to end", timeout_seconds=timeout, poll_seconds=POLL_SECONDS)

    def node_states(self) -> dict[str, str]:
        """Give the state of each node, flags included, in lower case."""
        lines = self.run("sinfo", "--noheader", "--Node", "--all", "--format=%N %T").splitlines()
        return {name: state for name, _, state in (line.partition(" ") for line in lines)}

    def wait_idle(self, *, timeout: float = 120.0) -> None:
        """Wait until every node is idle, waking those that a test has drained or that came back from the dead."""

        def are_idle() -> bool:
            try:
                states = self.node_states()
            except CommandFailed:
                # The controller may still be coming up.
                return False
            for name, state in states.items():
                if state.startswith(("drain", "down")):
                    with contextlib.suppress(CommandFailed):
                        self.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
            return bool(states) and set(states.values()) == {IDLE}

        wait_until(are_idle, "idle nodes", timeout_seconds=timeout, poll_seconds=POLL_SECONDS)

    def _environment_of(self, someone: UnixUser) -> dict[str, str]:
        return {
            "PATH": SEARCH_PATH,
            "LC_ALL": "C",
            "USER": someone.name,
            "LOGNAME": someone.name,
            "HOME": os.fspath(self._folder_of(someone.name)),
            **self._environment,
        }

    def _folder_of(self, user: str | None) -> Path:
        return self._users_folder if user in (None, "root") else self._users_folder / str(user)


def _text(output: bytes | str | None) -> str:
    if isinstance(output, bytes):
        return output.decode(errors="replace")
    return output or ""
