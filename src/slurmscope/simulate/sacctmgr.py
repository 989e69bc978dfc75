# SPDX-License-Identifier: Apache-2.0
"""Answer like sacctmgr 22.05 the one question of an exporter: ``show stats``.

Known options: ``-r -n -P -V``. Nothing can be changed, so nothing can go wrong.
"""

from __future__ import annotations

import getopt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from slurmscope.simulate.listing import Answer, Command, ReadColumn, UsageError, refuse, version_answer
from slurmscope.simulate.table import encode

if TYPE_CHECKING:
    from slurmscope.simulate.records import SimulatedCluster

_NAME = "sacctmgr"
_REPORT = "report"


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:  # noqa: ARG001 - there is but one
    """Return the whole answer."""
    from slurmscope.simulate.reports import make_database_report

    return [encode(make_database_report(cluster))]


def respond(read: ReadColumn, argv: Sequence[str], environment: Mapping[str, str]) -> Answer:  # noqa: ARG001
    """Answer a question about slurmdbd; any other is refused."""
    try:
        options, words = getopt.gnu_getopt(list(argv), "rnPV", ["readonly", "noheader", "parsable2", "version"])
        if any(option in ("-V", "--version") for option, _ in options):
            return version_answer()
        if [word.lower() for word in words] not in (["show", "stats"], ["list", "stats"]):
            raise UsageError(f"no such question is simulated: {' '.join(words)}")
    except (getopt.GetoptError, UsageError) as error:
        return refuse(_NAME, error)
    return 0, b"".join(read(_REPORT)), b""


COMMAND = Command(name=_NAME, columns=(_REPORT,), column=column, respond=respond)
answer = COMMAND.answer
