# SPDX-License-Identifier: Apache-2.0
"""Receive Slurm's own samples of steps and tasks, if a socket is configured, and push them if wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.errors import ConfigError
from slurmscope.model.check import Check
from slurmscope.model.profile import Profile
from slurmscope.outputs.settings import parse_push_url
from slurmscope.services.node.profile_push import ProfilePush, open_profile_push
from slurmscope.services.node.profile_receiver import ProfileReceiver
from slurmscope.services.node.profile_steps import ProfileSteps
from slurmscope.settings import setting
from slurmscope.units import parse_positive_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """How samples of Slurm's profiling plugin are received; see docs/profiling.md."""

    socket: Path | None = setting(
        None,
        help="Listen on this unix socket for Slurm's profiling plugin; ProfilePrometheusSocket in acct_gather.conf.",
        parse=parse_path,
        metavar="FILE",
    )
    timeout: float = setting(
        600.0,
        help="Drop a step that sent nothing for this long; longer than the intervals of JobAcctGatherFrequency.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )
    push: str = setting(
        "",
        help="Push the samples to this Pushgateway under Slurm's own names, and delete them there at the step's end.",
        parse=parse_push_url,
        metavar="URL",
        is_secret=True,
    )
    push_interval: float = setting(
        5.0,
        help="Minimum interval between pushes of the same job.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )


class NodeProfiling:
    """Hold the receiver and the pushes, if there are any."""

    def __init__(self, settings: ProfileSettings, *, grace_seconds: float, host: str) -> None:
        """Take how long ended steps are served, and the name by which pushed groups are recognised as ours."""
        if settings.push and settings.socket is None:
            raise ConfigError("profile.push needs profile.socket, where the samples to push arrive")
        self._settings = settings
        self._grace_seconds = grace_seconds
        self._host = host
        self._receiver: ProfileReceiver | None = None
        self._push: ProfilePush | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Receive and push until the block ends."""
        settings = self._settings
        if settings.socket is None:
            yield
            return
        steps = ProfileSteps(grace_seconds=self._grace_seconds, timeout_seconds=settings.timeout)
        with ExitStack() as stack:
            self._receiver = stack.enter_context(closing(ProfileReceiver(settings.socket, steps)))
            if settings.push:
                self._push = ProfilePush(settings.push, self._receiver.read_own, host=self._host)
                stack.enter_context(open_profile_push(self._push, settings.push_interval))
            yield

    def read(self) -> Profile:
        """Return the current steps, none if no socket is configured; raise SourceError if nothing can be received."""
        if self._receiver is None:
            return Profile()
        return replace(self._receiver.read(), push_errors=self._push.errors if self._push else None)

    def checks(self) -> Iterator[Check]:
        """Check whether samples can be received."""
        if self._receiver is not None:
            yield from self._receiver.checks()
