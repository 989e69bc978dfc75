# SPDX-License-Identifier: Apache-2.0
"""Answer like sshare 22.05.

Known options: ``-n -a -P -p -o -V``. Only the two parsable forms are printed. All accounts are children of the root;
levels and factors follow the fair-tree rules: who has used less of what was granted comes first, accounts before their
users.
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


_NAME = "sshare"
_ROWS = "rows"
# Between the values of a stored row. No name that Slurm takes has it.
_SEPARATOR = b"\x1f"
_HEADERS = (
    "Account", "User", "Partition", "RawShares", "NormShares", "RawUsage", "NormUsage", "EffectvUsage", "FairShare",
    "LevelFS", "GrpTRESMins", "TRESRunMins", "GrpTRESRaw", "Cluster",
)  # fmt: skip
_DEFAULT = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
_OPTIONS = {"n": "noheader", "a": "all", "P": "parsable2", "p": "parsable", "o:": "format", "V": "version"}


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:  # noqa: ARG001 - there is but one
    """Return the rows of the tree, each with all values."""
    from slurmscope.simulator.cluster.usage import make_rows

    return [_SEPARATOR.join(encode(row.get(header, "")) for header in _HEADERS) for row in make_rows(cluster)]


def respond(read: ReadColumn, argv: Sequence[str], environment: Mapping[str, str]) -> CommandResult:  # noqa: ARG001
    """Answer from the stored rows; an unknown field costs the answer, as it does with the real command."""
    try:
        options = parse_options(argv, _OPTIONS)
        if "version" in options:
            return version_answer()
        if "parsable" not in options and "parsable2" not in options:
            raise UsageError("only --parsable and --parsable2 are simulated")
        places = [_place(name) for name in options.values.get("format", _DEFAULT).split(",")]
    except UsageError as error:
        return refuse(_NAME, error)
    rows = [row.split(_SEPARATOR) for row in read(_ROWS)]
    if "noheader" not in options:
        rows.insert(0, [encode(header) for header in _HEADERS])
    end = b"\n" if "parsable2" in options else b"|\n"
    # Without --all sshare shows the accounts and the user who asks; there is no such user here.
    lines = (b"|".join(row[place] for place in places) for row in rows if "all" in options or row[1] in (b"", b"User"))
    return 0, b"".join(line + end for line in lines), b""


def _place(name: str) -> int:
    for place, header in enumerate(_HEADERS):
        if header.lower() == name.lower():
            return place
    raise UsageError(f'Invalid field requested: "{name.lower()}"')


COMMAND = Command(name=_NAME, columns=(_ROWS,), column=column, respond=respond)
answer = COMMAND.answer
