# SPDX-License-Identifier: Apache-2.0
"""People stop the weekly letters to themselves, admins those to anybody, and nobody else stops any (W5)."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest

from slurmscope.errors import ArchiveError
from slurmscope.portal.app import make_app
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.web.server import protect
from slurmscope.store.archive.audit import AuditLog
from tests.fakes.archive_desk import open_archive_desk
from tests.fakes.asgi import call
from tests.fakes.browser import Page, Visitor
from tests.fakes.forms import ShownForm, find_form, post
from tests.fakes.portal_desk import SECRET, WHO, FakeDesk, make_jobs
from tests.fakes.reports import START, make_record, make_report
from tests.fakes.sign_in import make_scope

PATH = "/users/ada/letter"
NOW = START + 3 * 86400


def show(desk: FakeDesk, who: str, path: str = "/users/ada") -> str:
    return Visitor(make_app(desk), who).get(path).text


def form_of(desk: FakeDesk, who: str, path: str = "/users/ada") -> ShownForm:
    form = find_form(show(desk, who, path))
    assert form is not None
    return form


def fields_for(who: str, wish: str = "stop", issued: int = NOW) -> dict[str, str]:
    """Make by hand what the form of somebody's page carries."""
    digest = hmac.digest(SECRET, f"{issued} {who}".encode(), "sha256").hex()
    return {"csrf_token": f"{issued}.{digest}", "wish": wish}


def test_page_says_whether_letters_are_sent_and_has_a_button_for_the_other(desk: FakeDesk) -> None:
    sent, form = Page(show(desk, "ada")), form_of(desk, "ada")
    assert "Weekly letter You get a letter each week about your jobs" in sent.text
    assert ShownForm(PATH, fields_for("ada", "stop"), ("Stop the weekly letter",)) == form
    assert {"id": "letter"} in sent.all("h2")
    assert {"aria-labelledby": "letter"} in sent.all("section")

    desk.letters.opted_out.add("ada")

    stopped, form = Page(show(desk, "ada")), form_of(desk, "ada")
    assert "Weekly letter You get no weekly letters." in stopped.text
    assert ShownForm(PATH, fields_for("ada", "send"), ("Send the weekly letter again",)) == form


def test_form_does_what_its_button_says_and_leads_back_to_the_page(desk: FakeDesk) -> None:
    form = form_of(desk, "ada")
    answer = post(make_app(desk), form.action, form.fields, "ada")
    assert (303, "/users/ada#letter") == (answer.status_code, answer.headers["location"])
    assert {"ada"} == desk.letters.opted_out

    form = form_of(desk, "ada")
    assert 303 == post(make_app(desk), form.action, form.fields, "ada").status_code
    assert set() == desk.letters.opted_out
    assert [] == desk.audited


def test_form_that_is_sent_twice_does_the_same_once(desk: FakeDesk) -> None:
    app = make_app(desk)
    answers = [post(app, PATH, fields_for("ada"), "ada").status_code for _ in range(2)]

    assert ([303, 303], {"ada"}) == (answers, desk.letters.opted_out)


def test_admin_does_it_for_others_and_each_time_is_written_down(desk: FakeDesk) -> None:
    page, form = Page(show(desk, "root")), form_of(desk, "root")
    assert "ada gets a letter each week about their jobs" in page.text
    desk.audited.clear()

    post(make_app(desk), form.action, form.fields, "root")
    post(make_app(desk), form.action, {**form.fields, "wish": "send"}, "root")
    post(make_app(desk), form.action, form.fields, "root")

    route = "/users/{name:path}/letter"
    # The jobs were submitted on 2026-09-21; the desk's clock is three days on.
    subjects = [f"letters to ada: {wish}, 2026-09-24" for wish in ("stop", "send", "stop")]
    assert [("root", route, subject) for subject in subjects] == [
        (who, path, subject[: len(expected)])
        for (who, path, subject), expected in zip(desk.audited, subjects, strict=True)
    ]
    assert {"ada"} == desk.letters.opted_out
    assert "ada gets no weekly letters." in Page(show(desk, "root")).text


def test_admin_leaves_no_trace_for_letters_to_themselves(desk: FakeDesk) -> None:
    assert 303 == post(make_app(desk), "/users/root/letter", fields_for("root"), "root").status_code
    assert ({"root"}, []) == (desk.letters.opted_out, desk.audited)


@pytest.mark.parametrize("who", ["sue", "cora"])
def test_who_may_only_look_has_no_button_and_changes_nothing(desk: FakeDesk, who: str) -> None:
    assert "Weekly letter" not in show(desk, who)
    assert None is find_form(show(desk, who))

    answer = post(make_app(desk), PATH, fields_for(who), who)

    assert (403, set()) == (answer.status_code, desk.letters.opted_out)
    assert "Only this person, and the admins of the portal, can change that." in Page(answer.text).text


def test_support_stops_letters_to_themselves(desk: FakeDesk) -> None:
    form = form_of(desk, "sue", "/users/sue")

    assert 303 == post(make_app(desk), form.action, form.fields, "sue").status_code
    assert {"sue"} == desk.letters.opted_out


def test_account_has_no_letter_to_stop(desk: FakeDesk) -> None:
    assert None is find_form(show(desk, "root", "/accounts/physics"))


@pytest.mark.parametrize("who", ["eve", "root"])
def test_absent_person_is_answered_as_by_the_page(desk: FakeDesk, who: str) -> None:
    asked = Visitor(make_app(desk), who).get("/users/nobody")
    sent = post(make_app(desk), "/users/nobody/letter", fields_for(who), who)

    assert (404, asked.content) == (sent.status_code, sent.content)
    assert (set(), []) == (desk.letters.opted_out, desk.audited)


def test_foreign_person_is_as_absent_as_one_who_never_was(desk: FakeDesk) -> None:
    foreign = post(make_app(desk), PATH, fields_for("eve"), "eve")
    absent = post(make_app(desk), "/users/nobody/letter", fields_for("eve"), "eve")

    assert (404, absent.content, set()) == (foreign.status_code, foreign.content, desk.letters.opted_out)


@pytest.mark.parametrize(
    "fields",
    [
        {"wish": "stop"},
        {**fields_for("ada"), "csrf_token": "1.x"},
        fields_for("bob"),
        fields_for("ada", issued=NOW - 12 * 3600 - 1),
        fields_for("ada", issued=NOW + 1),
    ],
    ids=["none", "malformed", "of another person", "old", "of the future"],
)
def test_form_without_the_token_of_our_page_is_refused(desk: FakeDesk, fields: dict[str, str]) -> None:
    answer = post(make_app(desk), PATH, fields, "ada")

    assert (403, set()) == (answer.status_code, desk.letters.opted_out)
    assert "Load the page again" in answer.text


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}])
def test_form_of_another_site_is_refused_even_with_a_good_token(desk: FakeDesk, headers: dict[str, str]) -> None:
    answer = post(make_app(desk), PATH, fields_for("ada"), "ada", headers=headers)

    assert (403, set()) == (answer.status_code, desk.letters.opted_out)


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "same-origin"}, {"origin": "http://portal.test"}])
def test_what_browsers_say_of_our_own_form_is_accepted(desk: FakeDesk, headers: dict[str, str]) -> None:
    assert 303 == post(make_app(desk), PATH, fields_for("ada"), "ada", headers=headers).status_code


def test_program_with_an_api_token_needs_no_form(desk: FakeDesk) -> None:
    answer = post(make_app(desk), PATH, {"wish": "stop"}, "ada", headers={"authorization": "Bearer x"})

    assert (303, {"ada"}) == (answer.status_code, desk.letters.opted_out)


@pytest.mark.parametrize("fields", [{"csrf_token": "x"}, {"wish": "toggle"}, {}])
def test_wish_that_is_none_is_told(desk: FakeDesk, fields: dict[str, str]) -> None:
    answer = post(make_app(desk), PATH, fields, "ada")

    assert (422, set()) == (answer.status_code, desk.letters.opted_out)
    assert "wish: " in answer.text


def test_nothing_changes_by_following_a_link(desk: FakeDesk) -> None:
    fields = fields_for("ada")
    query = f"?wish=stop&csrf_token={fields['csrf_token']}"

    assert 404 == Visitor(make_app(desk), "ada").get(f"{PATH}{query}").status_code
    assert 422 == post(make_app(desk), f"{PATH}{query}", {}, "ada").status_code
    assert 405 == post(make_app(desk), "/users/ada", fields, "ada").status_code
    assert set() == desk.letters.opted_out


def test_archive_that_cannot_be_written_is_told(desk: FakeDesk) -> None:
    desk.letters.error = ArchiveError("the archive is read-only")

    assert 503 == post(make_app(desk), PATH, fields_for("ada"), "ada").status_code


def test_portal_under_a_path_leads_back_under_it(desk: FakeDesk) -> None:
    desk.settings = PortalSettings(base_path="/portal")
    form = form_of(desk, "ada", "/portal/users/ada")

    answer = post(make_app(desk), form.action, form.fields, "ada")

    assert "/portal/users/ada/letter" == form.action
    assert (303, "/portal/users/ada#letter") == (answer.status_code, answer.headers["location"])


def test_name_with_a_slash_is_one_name(desk: FakeDesk) -> None:
    desk.archive.save([make_report(make_record(4990, user="lab/ada"))])
    form = form_of(desk, "root", "/users/lab%2Fada")

    answer = post(make_app(desk), form.action, form.fields, "root")

    assert "/users/lab%2Fada/letter" == form.action
    assert (303, "/users/lab%2Fada#letter") == (answer.status_code, answer.headers["location"])
    assert {"lab/ada"} == desk.letters.opted_out


def test_protected_portal_takes_the_form_and_lets_browsers_send_it(desk: FakeDesk) -> None:
    app = protect(make_app(desk), desk.settings)
    answer = post(app, PATH, fields_for("ada"), "ada")

    assert (303, {"ada"}) == (answer.status_code, desk.letters.opted_out)
    assert "form-action 'self'" in answer.headers["content-security-policy"]
    assert "private, no-store" == answer.headers["cache-control"]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_form_that_is_too_large_is_cut_off_before_it_is_read(desk: FakeDesk, kind: str) -> None:
    app = protect(make_app(desk), desk.settings)
    scope = make_scope((WHO, "ada"), ("content-type", kind), method="POST", path=PATH)
    start = b'--x\r\nContent-Disposition: form-data; name="wish"\r\n\r\n' if "boundary" in kind else b"wish="

    sent = call(app, scope, [start, b"a" * 40_000, b"a" * 40_000])

    assert (413, b"The request has more than 65536 bytes.\n") == (sent.status, sent.body)


def test_archive_remembers_it_and_every_change_of_an_admin(tmp_path: Path) -> None:
    with open_archive_desk(tmp_path, make_jobs()) as desk:
        desk.audit_trail = log = AuditLog(desk.archive.database)
        for wish in ("stop", "send", "stop"):
            assert 303 == post(make_app(desk), PATH, fields_for("root", wish), "root").status_code
            assert (wish == "stop") == desk.letters.is_opted_out("ada")
            desk.seconds += 1
        subjects = [row.subject.partition(",")[0] for row in reversed(log.list_rows())]
    assert [f"letters to ada: {wish}" for wish in ("stop", "send", "stop")] == subjects
