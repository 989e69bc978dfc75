# SPDX-License-Identifier: Apache-2.0
"""Request pages of the portal as one viewer, and parse them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Protocol

import httpx

from slurmscope.portal.scope import AsgiApp
from tests.fakes.portal_backend import USER_HEADER

_WITHOUT_END = frozenset({"br", "img", "input", "link", "meta", "source"})


class HasApp(Protocol):
    """Builds an application of the portal."""

    def make_app(self) -> AsgiApp:
        """Build the portal's application."""
        ...


def open_portal(backend: HasApp, name: str = "") -> PortalClient:
    """Return a client of a new application; without a name, it is not signed in."""
    return PortalClient(backend.make_app(), name)


@dataclass
class PortalClient:
    """Send requests as one user; without a name, not signed in."""

    app: AsgiApp
    name: str = ""

    def get(self, path: str, **headers: str) -> httpx.Response:
        if self.name:
            headers[USER_HEADER] = self.name
        return asyncio.run(self._get(path, {key.replace("_", "-"): value for key, value in headers.items()}))

    async def _get(self, path: str, headers: dict[str, str]) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://portal.test") as client:
            return await client.get(path, headers=headers)


@dataclass
class Page(HTMLParser):
    """Collect the elements and the text of a page."""

    html: str
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _WITHOUT_END:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop(), f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def links(self) -> list[str]:
        return [attrs["href"] or "" for tag, attrs in self.elements if tag == "a" and "href" in attrs]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]
