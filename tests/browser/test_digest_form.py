# SPDX-License-Identifier: Apache-2.0
"""The weekly digest is stopped and resumed in a real browser, with the keyboard alone and without scripts."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.watching import PATIENCE_MILLISECONDS, watching
from tests.fakes.asgi import running
from tests.fakes.portal_backend import USER_HEADER, make_backend

expect.set_options(timeout=PATIENCE_MILLISECONDS)


def test_digest_is_stopped_and_resumed_with_the_keyboard(browser: Browser) -> None:
    backend = make_backend()
    with running(backend.make_app(), backend.settings) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with watching(browser, base, java_script_enabled=False, extra_http_headers={USER_HEADER: "ada"}) as window:
            page = window.open("/users/ada")
            digest = page.get_by_role("region", name="Weekly digest")
            for name, is_stopped in (("Stop the weekly digest", True), ("Send the weekly digest again", False)):
                digest.get_by_role("button", name=name).focus()
                page.keyboard.press("Enter")
                page.wait_for_url(f"{base}/users/ada#digest")
                expect(digest).to_contain_text("You do not get" if is_stopped else "you get a weekly mail")
                assert ({"ada"} if is_stopped else set()) == backend.opt_outs.opted_out


def test_digest_form_is_accessible(browser: Browser) -> None:
    backend = make_backend()
    with running(backend.make_app(), backend.settings) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with watching(browser, base, extra_http_headers={USER_HEADER: "root"}) as window:
            window.open("/users/ada#digest")
            assert [] == window.find_barriers()
            window.shoot("digest")
