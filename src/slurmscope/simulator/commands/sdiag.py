# SPDX-License-Identifier: Apache-2.0
"""Answer like sdiag 22.05.

Known options: ``-a -V``. Times are those of UTC; the seconds behind them are right in every zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from slurmscope.simulator.commands.listing import (
    Command,
    CommandResult,
    ReadColumn,
    UsageError,
    encode,
    parse_options,
    refuse,
    version_answer,
)

if TYPE_CHECKING:
    from slurmscope.simulator.cluster.records import SimulatedCluster


_NAME = "sdiag"
_REPORT = "report"
_OPTIONS = {"a": "all", "V": "version"}


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:  # noqa: ARG001 - there is but one
    """Return the whole answer."""
    from slurmscope.simulator.cluster.daemons import make_diag

    return [encode(make_diag(cluster))]


def respond(read: ReadColumn, argv: Sequence[str], environment: Mapping[str, str]) -> CommandResult:  # noqa: ARG001
    """Print the statistics."""
    try:
        if "version" in parse_options(argv, _OPTIONS):
            return version_answer()
    except UsageError as error:
        return refuse(_NAME, error)
    return 0, b"".join(read(_REPORT)), b""


COMMAND = Command(name=_NAME, columns=(_REPORT,), column=column, respond=respond)
answer = COMMAND.answer
