# SPDX-License-Identifier: Apache-2.0
"""Name every way in which slurmscope can fail.

::

    SlurmscopeError            one sentence for the user, never a traceback
    ├── ConfigError            a flag, key, file or address is wrong (exit code 2)
    ├── MissingExtraError      a feature needs a package that is not installed (exit code 2)
    ├── SourceError            something could not be read
    │   ├── CommandError       a command gave no usable answer
    │   │   ├── CommandMissing     it is not there, or may not be run
    │   │   ├── CommandTimedOut    it was killed at its time limit
    │   │   ├── CommandRefused     Slurm did not let us in, or could not be reached
    │   │   └── CommandFailed      it ended with another exit code or by a signal
    │   ├── ServerError        a server (slurmrestd, Prometheus, a database) gave no usable answer
    │   │   ├── ServerTimedOut     no whole answer came within the time limit
    │   │   ├── ServerRefused      it cannot be reached, or did not let us in
    │   │   └── ServerBusy         it cannot answer now, and may a moment later
    │   ├── SlurmRefused       an answer came, and it says that Slurm could not give one
    │   └── MalformedAnswer    an answer came, but not in a shape we know
    ├── ArchiveError           the archive of jobs could not be read or written
    │   └── ArchiveTooLarge        it will never take this row: it is too large
    └── OutputError            something could not be written or sent
"""

from __future__ import annotations

from collections.abc import Sequence


class SlurmscopeError(Exception):
    """Carry one sentence that tells what happened, to what, and what to do next."""


class ConfigError(SlurmscopeError):
    """Tell which flag, key, file or address is wrong."""


class MissingExtraError(SlurmscopeError):
    """Tell which optional package group a feature needs."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra '{extra}': pip install 'slurmscope[{extra}]'")
        self.feature = feature
        self.extra = extra


class SourceError(SlurmscopeError):
    """Tell what could not be read; ``reason`` is one word of a closed set, fit for a label."""

    reason = "failed"


class CommandError(SourceError):
    """Tell which command gave no usable answer."""

    def __init__(self, argv: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.argv = tuple(argv)


class CommandMissing(CommandError):
    """The program is not there or may not be run."""

    reason = "missing"


class CommandTimedOut(CommandError):
    """The program and all its children were killed at the time limit."""

    reason = "timeout"


class CommandRefused(CommandError):
    """Slurm refused us or could not be reached: controller down, munge down, no permission, rate limit."""

    reason = "refused"


class CommandFailed(CommandError):
    """The program ended with an exit code other than 0, or by a signal."""

    reason = "failed"


class ServerError(SourceError):
    """A server of Slurm answered with something else than what was asked for."""


class ServerTimedOut(ServerError):
    """No whole answer came within the time limit."""

    reason = "timeout"


class ServerRefused(ServerError):
    """The server cannot be reached, or does not let us in."""

    reason = "refused"


class ServerBusy(ServerError):
    """The server cannot answer now; it may a moment later."""


class SlurmRefused(SourceError):
    """An answer came, and it says that Slurm itself could not give one: controller down, no permission."""

    reason = "refused"


class MalformedAnswer(SourceError):
    """The answer was cut, too large, or not in a shape we know."""

    reason = "malformed"


class ArchiveError(SlurmscopeError):
    """Tell what the database of the archive could not do."""


class ArchiveTooLarge(ArchiveError):
    """A row is larger than the database takes; trying again will not help, a smaller one will."""


class OutputError(SlurmscopeError):
    """Tell what could not be written or sent."""
