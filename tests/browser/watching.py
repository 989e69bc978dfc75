# SPDX-License-Identifier: Apache-2.0
"""Open pages in a real browser, and record errors."""

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


_SAME_NAME = """() => {
    const named = {};
    for (const link of document.querySelectorAll("main a[href], main summary")) {
        const name = (link.getAttribute("aria-label") || link.textContent).trim();
        (named[name] ??= new Set()).add(link.href || link);
    }
    return Object.entries(named).filter(([, targets]) => targets.size > 1).map(([name]) => name);
}"""


@dataclass
class Watched:
    """Hold one window of a browser."""

    page: Page
    base: str
    errors: list[str] = field(default_factory=list)
    """Errors in the console or in scripts, dialogs, requests to other hosts, and server errors."""

    def open(self, path: str) -> Page:
        """Open a page of the portal, and wait until it is loaded."""
        self.page.goto(self.base + path)
        self.page.wait_for_load_state("networkidle")
        return self.page

    def open_filter(self) -> None:
        """Unfold the filter of a list."""
        self.page.locator(".filter-box > summary").click()

    def shoot(self, name: str) -> None:
        """Save a screenshot of the whole page."""
        self.page.screenshot(path=screenshot_folder() / f"{name}.png", full_page=True)

    def find_barriers(self) -> list[str]:
        """Return serious and critical accessibility violations."""
        violations = Axe().run(self.page).response["violations"]
        return [
            f"{found['id']}: {found['nodes'][0]['target']}"
            for found in violations
            if found["impact"] in {"serious", "critical"}
        ]

    def find_shared_names(self) -> list[str]:
        """Return the names that links and summaries with different targets have in common."""
        names: list[str] = self.page.evaluate(_SAME_NAME)
        return names

    def is_wider_than_its_window(self) -> bool:
        """Return whether the page scrolls sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


@contextmanager
def watching(browser: Browser, base: str, **options: Any) -> Iterator[Watched]:
    """Open a window, and fail at its end if errors were recorded."""
    context = browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    context.add_init_script(_VIOLATIONS)
    watched = Watched(context.new_page(), base.rstrip("/"))
    _watch(watched)
    try:
        yield watched
        if watched.errors:
            raise AssertionError("\n".join(watched.errors))
    finally:
        context.close()


def screenshot_folder() -> Path:
    """Return the folder of screenshots, which git ignores."""
    folder = Path(os.environ.get("SLURMSCOPE_SCREENSHOTS") or Path(__file__).parent / "output")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder


def _watch(watched: Watched) -> None:
    page, errors, host = watched.page, watched.errors, urlsplit(watched.base).netloc

    def check_request(url: str) -> None:
        if urlsplit(url).scheme != "data" and urlsplit(url).netloc != host:
            errors.append(f"request to {url}")

    page.on("request", lambda request: check_request(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("response", lambda response: errors.append(response.url) if response.status >= 500 else None)

    def dismiss(dialog: Any) -> None:
        errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", dismiss)
