# SPDX-License-Identifier: Apache-2.0
"""Define the exceptions of slurmscope.

::

    SlurmscopeError            one sentence for the user, without a traceback
    ├── ConfigError            a flag, key, file or address is wrong (exit code 2)
    ├── MissingExtraError      a feature needs a package that is not installed (exit code 2)
    ├── SourceError            something could not be read
    │   ├── CommandError       a command returned no usable output
    │   │   ├── CommandMissing     the program does not exist or is not executable
    │   │   ├── CommandTimedOut    the program was killed after its timeout
    │   │   ├── CommandRefused     Slurm denied access or is unreachable
    │   │   └── CommandFailed      the program exited with an error or was killed by a signal
    │   ├── ServerError        a server (slurmrestd, Prometheus, a database) returned no usable response
    │   │   ├── ServerTimedOut     no complete response arrived before the timeout
    │   │   ├── ServerRefused      the server is unreachable or denied access
    │   │   │   └── ServerUntrusted    its certificate could not be verified
    │   │   ├── ServerBusy         the server is temporarily unavailable
    │   │   └── QueryRejected      the server cannot evaluate this query, however often it is repeated
    │   ├── SlurmRefused       a response arrived that reports an error of Slurm
    │   └── MalformedAnswer    a response arrived in an unknown format
    ├── ArchiveError           the job archive could not be read or written
    │   ├── ArchiveTooLarge        a report exceeds the size limit of the archive
    │   ├── LimitReached           as many notes or views as are kept exist
    │   ├── UnreadableReport       a stored report cannot be decoded; others can
    │   └── ArchiveSchemaError     the tables are those of another release
    ├── AmbiguousName          a job ID or node name exists in several clusters
    └── OutputError            something could not be written or sent
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence


class SlurmscopeError(Exception):
    """Carry one sentence: what happened, to what, and what to do."""


class ConfigError(SlurmscopeError):
    """A flag, key, file or address is wrong."""


class MissingExtraError(SlurmscopeError):
    """A feature needs an optional package group that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra '{extra}': {_install_advice(extra)}")
        self.feature = feature
        self.extra = extra


def _install_advice(extra: str) -> str:
    """Name the pip of this environment; distributions refuse to let pip change their own Python."""
    package = f"'slurmscope[{extra}]'"
    if sys.prefix == sys.base_prefix:
        return f"install slurmscope in a virtual environment with {package}; see docs/install.md"
    return (
        f"{sys.executable} -m pip install --no-index --find-links DIR {package}, with DIR as the folder of your wheels"
    )


class AmbiguousName(SlurmscopeError):
    """A job, array or node of this name exists in several clusters, all of which the viewer may see."""

    def __init__(self, kind: str, name: str, clusters: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.clusters = tuple(sorted(clusters))
        super().__init__(f"{kind} {name} exists in several clusters: {', '.join(self.clusters)}")


class SourceError(SlurmscopeError):
    """Something could not be read; ``reason`` is one of a fixed set of label values."""

    reason = "failed"


class CommandError(SourceError):
    """A command returned no usable output; ``stdout`` is what it printed before it failed."""

    def __init__(self, argv: Sequence[str], message: str, stdout: bytes = b"") -> None:
        super().__init__(message)
        self.argv = tuple(argv)
        self.stdout = stdout


class CommandMissing(CommandError):
    reason = "missing"


class CommandTimedOut(CommandError):
    reason = "timeout"


class CommandRefused(CommandError):
    """Slurm denied access or is unreachable: controller down, munge down, no permission, rate limit."""

    reason = "refused"


class CommandFailed(CommandError):
    """The program exited with a code other than 0, or was killed by a signal."""


class ServerError(SourceError):
    """A server returned no usable response."""


class ServerTimedOut(ServerError):
    reason = "timeout"


class ServerRefused(ServerError):
    reason = "refused"


class ServerUntrusted(ServerRefused):
    """The certificate of the server could not be verified."""


class ServerBusy(ServerError):
    """The server is temporarily unavailable."""


class QueryRejected(ServerError):
    """The server cannot evaluate this query; a repetition does not help, and other queries are not affected."""


class SlurmRefused(SourceError):
    reason = "refused"


class MalformedAnswer(SourceError):
    """The response is truncated, too large, or in an unknown format."""

    reason = "malformed"


class TruncatedArrays(SourceError):
    """Slurm has left out tasks of job arrays, so that no number of jobs would be right."""

    reason = "truncated"


class ArchiveError(SlurmscopeError):
    """The job archive could not be read or written."""


class ArchiveTooLarge(ArchiveError):
    """A report exceeds the size limit of the archive or its database; retrying does not help."""


class LimitReached(ArchiveError):
    """There are as many notes or views as are kept; the message says what to do."""


class UnreadableReport(ArchiveError):
    """A stored report cannot be decoded; others can."""


class ArchiveSchemaError(ArchiveError):
    """The tables are those of another release; the message says what to do."""


class OutputError(SlurmscopeError):
    """Something could not be written or sent."""
