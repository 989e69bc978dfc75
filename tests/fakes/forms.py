# SPDX-License-Identifier: Apache-2.0
"""Read and submit the forms of portal pages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from slurmscope.portal.scope import AsgiApp
from tests.fakes.browser import Page
from tests.fakes.portal_backend import USER_HEADER


def post(
    app: AsgiApp, path: str, fields: Mapping[str, str], who: str = "", *, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """Submit a form as one user, as a browser does; without a name, not signed in."""
    return asyncio.run(_post(app, path, fields, {**({USER_HEADER: who} if who else {}), **(headers or {})}))


async def _post(app: AsgiApp, path: str, fields: Mapping[str, str], headers: dict[str, str]) -> httpx.Response:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://portal.test") as client:
        return await client.post(path, data=dict(fields), headers=headers)


@dataclass(frozen=True, slots=True)
class ShownForm:
    """Hold the address, fields and button texts of a POST form."""

    action: str
    fields: dict[str, str]
    buttons: tuple[str, ...]


def find_form(html: str, ending: str = "/digest") -> ShownForm | None:
    """Return the POST form of a page whose address ends like this, if any: by default that of the digest."""
    forms = [form for form in _FormReader(html).forms if form.action.endswith(ending)]
    assert len(forms) <= 1
    return forms[0] if forms else None


class _FormReader(Page):
    """Collect forms while a page is parsed."""

    def __init__(self, html: str) -> None:
        self.forms: list[ShownForm] = []
        self._is_inside = False
        super().__init__(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        given = {key: value or "" for key, value in attrs}
        if tag == "form" and given.get("method") == "post":
            self.forms.append(ShownForm(given["action"], {}, ()))
            self._is_inside = True
        elif tag == "input" and self._is_inside:
            self.forms[-1].fields[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_inside = False
        super().handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        if self._is_inside and self.open[-1] == "button":
            form = self.forms[-1]
            self.forms[-1] = ShownForm(form.action, form.fields, (*form.buttons, data))
