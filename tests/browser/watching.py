# SPDX-License-Identifier: Apache-2.0
"""Open pages in a real browser, and remember everything that must not happen there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

PATIENCE_MILLISECONDS = 60_000.0
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 390, "height": 844}

_VIOLATIONS = """document.addEventListener("securitypolicyviolation", (event) =>
    console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`));"""


@dataclass
class Watched:
    """Be one window of a browser."""

    page: Page
    base: str
    mishaps: list[str] = field(default_factory=list)
    """Errors in the console or in scripts, dialogs, requests to other hosts, and servers' own failures."""

    def open(self, path: str) -> Page:
        """Go to a page of the portal, and wait until nothing moves any more."""
        self.page.goto(self.base + path)
        self.page.wait_for_load_state("networkidle")
        return self.page

    def shoot(self, name: str) -> None:
        """Keep a picture of the whole page."""
        self.page.screenshot(path=screenshot_folder() / f"{name}.png", full_page=True)

    def find_barriers(self) -> list[str]:
        """Return what keeps people out who cannot see, or cannot use a mouse: serious and critical ones."""
        violations = Axe().run(self.page).response["violations"]
        return [
            f"{found['id']}: {found['nodes'][0]['target']}"
            for found in violations
            if found["impact"] in {"serious", "critical"}
        ]

    def is_wider_than_its_window(self) -> bool:
        """Tell whether one would have to scroll sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


@contextmanager
def watching(browser: Browser, base: str, **options: Any) -> Iterator[Watched]:
    """Open a window, and fail at its end if anything went wrong in it."""
    context = browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    context.add_init_script(_VIOLATIONS)
    watched = Watched(context.new_page(), base.rstrip("/"))
    _watch(watched)
    try:
        yield watched
        if watched.mishaps:
            raise AssertionError("\n".join(watched.mishaps))
    finally:
        context.close()


def screenshot_folder() -> Path:
    """Return where pictures are kept; git does not look into it."""
    folder = Path(os.environ.get("SLURMSCOPE_SCREENSHOTS") or Path(__file__).parent / "output")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder


def _watch(watched: Watched) -> None:
    page, mishaps, host = watched.page, watched.mishaps, urlsplit(watched.base).netloc

    def note_request(url: str) -> None:
        if urlsplit(url).scheme != "data" and urlsplit(url).netloc != host:
            mishaps.append(f"request to {url}")

    page.on("request", lambda request: note_request(request.url))
    page.on("console", lambda said: mishaps.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: mishaps.append(str(error)))
    page.on("response", lambda answer: mishaps.append(answer.url) if answer.status >= 500 else None)

    def refuse(dialog: Any) -> None:
        mishaps.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)
