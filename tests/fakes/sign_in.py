# SPDX-License-Identifier: Apache-2.0
"""Fake the requests, tokens and clocks for tests of sign-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.identity import Identifier, LocalUsers, limit_failures
from slurmscope.portal.sign_in.munge import MungeCredentials

PROXY_ADDRESS = "10.0.0.5"
STRANGER = "203.0.113.9"
GOOD_TOKEN = "good-token-of-ada-0123456789abcdef"
PROXY_SETTINGS = PortalSettings(
    mode="proxy", proxy_peers=(PROXY_ADDRESS, "unix"), admins=("root", "eve"), support=("sue",)
)


def make_scope(
    *headers: tuple[str, str | bytes], client: str | None = "127.0.0.1", method: str = "GET", path: str = "/"
) -> dict[str, Any]:
    """Make the scope of one request; without a client it comes from the unix socket."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), v if isinstance(v, bytes) else v.encode("latin-1")) for name, v in headers],
        "client": (client, 40404) if client else None,
        "server": ("127.0.0.1", 8080) if client else ("/run/slurmscope/portal.sock", None),
    }


@dataclass(slots=True)
class FakeClock:
    """Return the time that a test sets."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(slots=True)
class FakeTokens:
    """Store tokens in clear, and record lookups."""

    known: dict[str, Viewer] = field(default_factory=lambda: {GOOD_TOKEN: Viewer(name="ada")})
    lookups: list[str] = field(default_factory=list)

    def find(self, token: str) -> Viewer | None:
        self.lookups.append(token)
        return self.known.get(token)


def coordinates_nothing(user: str) -> frozenset[str]:
    return frozenset()


def owned_by(uid: int | None) -> Callable[[tuple[str, int], tuple[str, int]], int | None]:
    """Return a function that reports this owner for every connection."""

    def find_owner(client: tuple[str, int], server: tuple[str, int]) -> int | None:
        return uid

    return find_owner


def make_identifier(
    settings: PortalSettings,
    *,
    tokens: FakeTokens | None = None,
    coordinators: Callable[[str], frozenset[str]] = coordinates_nothing,
    clock: Callable[[], float] | None = None,
    local_users: LocalUsers | None = None,
    munge: MungeCredentials | None = None,
    clusters: frozenset[str] | None = None,
) -> Identifier:
    """Make an identifier; by default all local connections belong to the user ``runner``."""
    limits = limit_failures(clock or FakeClock())
    name = settings.local_user or "runner"
    local_users = local_users or LocalUsers(name=name, names={1001: name}, find_owner=owned_by(1001))
    return Identifier(
        settings,
        (tokens or FakeTokens()).find,
        coordinators,
        limits,
        local_users=local_users,
        munge=munge,
        coordinated_clusters=lambda: clusters,
    )
