# SPDX-License-Identifier: Apache-2.0
"""The weekly letter is stopped and sent again in a real browser, with the keyboard alone and without scripts."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from slurmscope.portal.app import make_app
from tests.browser.watching import PATIENCE_MILLISECONDS, watching
from tests.fakes.asgi import running
from tests.fakes.portal_desk import WHO, make_desk

expect.set_options(timeout=PATIENCE_MILLISECONDS)


def test_letter_is_stopped_and_sent_again_with_the_keyboard(browser: Browser) -> None:
    desk = make_desk()
    with running(make_app(desk), desk.settings) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with watching(browser, base, java_script_enabled=False, extra_http_headers={WHO: "ada"}) as window:
            page = window.open("/users/ada")
            letter = page.get_by_role("region", name="Weekly letter")
            for name, is_stopped in (("Stop the weekly letter", True), ("Send the weekly letter again", False)):
                letter.get_by_role("button", name=name).focus()
                page.keyboard.press("Enter")
                page.wait_for_url(f"{base}/users/ada#letter")
                expect(letter).to_contain_text("You get no weekly letters." if is_stopped else "You get a letter")
                assert ({"ada"} if is_stopped else set()) == desk.letters.opted_out


def test_letter_keeps_nobody_out(browser: Browser) -> None:
    desk = make_desk()
    with running(make_app(desk), desk.settings) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with watching(browser, base, extra_http_headers={WHO: "root"}) as window:
            window.open("/users/ada#letter")
            assert [] == window.find_barriers()
            window.shoot("letter")
