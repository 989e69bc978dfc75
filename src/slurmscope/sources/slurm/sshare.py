# SPDX-License-Identifier: Apache-2.0
"""Read the fair share of all accounts and users with one sshare call.

The depth of an account in the tree is the number of blanks before its name. An account may have a
``|`` in its name; nothing after it can, so columns are counted from the right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from slurmscope.errors import MalformedAnswer
from slurmscope.model.shares import Share, Shares
from slurmscope.sources.slurm.tres_amounts import parse_minutes

COLUMNS = (
    "Account",
    "User",
    "Partition",
    "RawShares",
    "NormShares",
    "RawUsage",
    "NormUsage",
    "EffectvUsage",
    "FairShare",
    "LevelFS",
    "GrpTRESMins",
    "TRESRunMins",
    "GrpTRESRaw",
)
ARGUMENTS = ("--noheader", "--all", "--parsable2", "--format=" + ",".join(COLUMNS))


def parse_shares(answer: bytes) -> Shares:
    """Read one row per association; a row in another format is skipped, unless there is no other."""
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("sshare: the answer ends in the middle of a line")
    lines = answer.decode("utf-8", "surrogateescape").split("\n")[:-1]
    shares = tuple(_Tree().read(lines))
    if lines and not shares:
        raise MalformedAnswer("sshare: no line of the answer has the requested columns")
    return Shares(shares=shares, unreadable_rows=len(lines) - len(shares))


class _Tree:
    """Remember the branch of accounts that leads to the row that is read, and lists that were read before."""

    def __init__(self) -> None:
        self._branch: list[str] = []
        # Most users have run nothing: thousands of rows share the same list of zeros.
        self._lists: dict[str, dict[str, float]] = {}

    def read(self, lines: list[str]) -> Iterator[Share]:
        for line in lines:
            fields = line.rsplit("|", len(COLUMNS) - 1)
            account = fields[0].lstrip(" ")
            if len(fields) != len(COLUMNS) or not account:
                continue
            try:
                share = self._share(account, len(fields[0]) - len(account), fields)
            except ValueError:
                continue
            yield share

    def _share(self, account: str, depth: int, fields: list[str]) -> Share:
        raw_shares, norm_shares, raw_usage, norm_usage, effective_usage, fairshare, level = map(_number, fields[3:10])
        limits, running, used = map(self._amounts, fields[10:])
        user = fields[1]
        parent = "" if user else self._step(account, depth)
        return Share(
            account=account,
            user=user,
            partition=fields[2],
            parent=parent,
            raw_shares=raw_shares,
            norm_shares=norm_shares,
            raw_usage_seconds=raw_usage,
            norm_usage=norm_usage,
            effective_usage=effective_usage,
            fairshare=fairshare,
            level=level,
            tres_limit_seconds=limits,
            tres_run_seconds=running,
            tres_usage_seconds=used,
        )

    def _step(self, account: str, depth: int) -> str:
        """Move to an account and return its parent; without the rows above it (PrivateData) it has none."""
        if depth > len(self._branch):
            return ""
        self._branch[depth:] = [account]
        return self._branch[depth - 1] if depth else ""

    def _amounts(self, text: str) -> dict[str, float]:
        found = self._lists.get(text)
        if found is None:
            found = self._lists[text] = parse_minutes(text)
        return found


def _number(text: str) -> float | None:
    if text in ("", "parent"):
        return None
    value = float(text)
    return None if math.isnan(value) else value
