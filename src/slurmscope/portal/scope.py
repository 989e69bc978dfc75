# SPDX-License-Identifier: Apache-2.0
"""Read what an ASGI scope says about a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, cast

Scope = Mapping[str, object]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def headers_of(scope: Scope) -> Iterator[tuple[bytes, bytes]]:
    """Yield every header as it came, names in lower case, repeated ones repeatedly."""
    for name, value in cast("list[tuple[bytes, bytes]]", scope.get("headers", ())):
        yield name.lower(), value


def header_values(scope: Scope, name: str) -> tuple[bytes, ...]:
    """Return every value of a header; more than one is often a sign of an attempt."""
    wanted = name.lower().encode("ascii")
    return tuple(value for found, value in headers_of(scope) if found == wanted)
