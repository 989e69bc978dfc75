# SPDX-License-Identifier: Apache-2.0
"""Let the viewer of a demo choose with which rights its pages are shown.

Only ``slurmscope demo`` passes choices to the portal; without them there is no route, and the cookie is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.sign_in.errors import Refused

COOKIE = "slurmscope-demo-view"
PATH = "/demo/view-as"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoView:
    """One choice: its name in the form, its label, and whose rights it shows."""

    name: str
    label: str
    help: str
    viewer: Viewer


class ViewAs:
    """Replace the identified viewer by the one whom the cookie chooses; without a cookie, by the first."""

    path = PATH

    def __init__(self, views: Sequence[DemoView], identify: Callable[[Scope], Viewer]) -> None:
        self._identify = identify
        self.views = tuple(views)
        self._by_name = {view.name: view for view in views}

    def identify(self, scope: Scope) -> Viewer:
        """Return the chosen viewer to the one who runs the demo; reject others, and unknown choices."""
        self.check_local(scope)
        name = _read_cookie(scope)
        return self.views[0].viewer if name is None else self.find(name).viewer

    def check_local(self, scope: Scope) -> None:
        """Reject a request from anyone but the user who runs the demo."""
        self._identify(scope)

    def find(self, name: str) -> DemoView:
        """Return a choice by its name, or reject the request."""
        if name not in self._by_name:
            raise Refused("The demo has no such viewer. Choose one at the top of the page.")
        return self._by_name[name]


def _read_cookie(scope: Scope) -> str | None:
    """Return the value of our cookie, also an empty or ambiguous one; None if there is none."""
    found = []
    for header in header_values(scope, "cookie"):
        for part in header.split(b";"):
            name, _, value = part.strip().partition(b"=")
            if name == COOKIE.encode():
                found.append(value.decode("latin-1"))
    return found[0] if len(found) == 1 else "" if found else None
