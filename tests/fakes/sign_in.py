# SPDX-License-Identifier: Apache-2.0
"""Be the requests, tokens and clocks that tests of signing in need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slurmscope.model.viewer import Viewer
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.identity import Identifier
from slurmscope.portal.sign_in.limits import SignInLimits
from slurmscope.portal.sign_in.local_mode import Residents

PROXY_ADDRESS = "10.0.0.5"
STRANGER = "203.0.113.9"
GOOD_TOKEN = "good-token-of-ada-0123456789abcdef"
PROXY_SETTINGS = PortalSettings(
    mode="proxy", proxy_peers=(PROXY_ADDRESS, "unix"), admins=("root", "eve"), support=("sue",)
)


def make_scope(
    *headers: tuple[str, str | bytes], client: str | None = "127.0.0.1", method: str = "GET", path: str = "/"
) -> dict[str, Any]:
    """Make the scope of one request; without a client it came through the unix socket."""
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
    """Show the time that a test sets."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(slots=True)
class FakeTokens:
    """Know tokens in clear, and remember which ones were looked up."""

    known: dict[str, Viewer] = field(default_factory=lambda: {GOOD_TOKEN: Viewer(name="ada")})
    asked: list[str] = field(default_factory=list)

    def find(self, token: str) -> Viewer | None:
        self.asked.append(token)
        return self.known.get(token)


def coordinates_nothing(user: str) -> frozenset[str]:
    return frozenset()


def owned_by(uid: int | None) -> Callable[[tuple[str, int], tuple[str, int]], int | None]:
    """Make a kernel that says the same of every connection."""

    def owner_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
        return uid

    return owner_of


def make_identifier(
    settings: PortalSettings,
    *,
    tokens: FakeTokens | None = None,
    coordinators: Callable[[str], frozenset[str]] = coordinates_nothing,
    clock: Callable[[], float] | None = None,
    residents: Residents | None = None,
) -> Identifier:
    """Make an identifier that takes everybody on this machine for the user ``runner``, unless told otherwise."""
    limits = SignInLimits(clock=clock or FakeClock())
    name = settings.local_user or "runner"
    residents = residents or Residents(name=name, names={1001: name}, owner_of=owned_by(1001))
    return Identifier(settings, tokens or FakeTokens(), coordinators, limits, residents=residents)
