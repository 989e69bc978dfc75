# SPDX-License-Identifier: Apache-2.0
"""Users can stop their own weekly digest, admins that of any user (W5)."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest

from slurmscope.archive.access import AuditLog
from slurmscope.core.errors import ArchiveError
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.web.middleware import protect
from tests.fakes.archive_backend import open_archive_backend
from tests.fakes.asgi import call
from tests.fakes.browser import Page, PortalClient
from tests.fakes.forms import ShownForm, find_form, post
from tests.fakes.portal_backend import SECRET, USER_HEADER, FakeBackend, make_jobs
from tests.fakes.reports import START, make_record, make_report
from tests.fakes.sign_in import make_scope

PATH = "/users/ada/digest"
NOW = START + 3 * 86400


def show(backend: FakeBackend, who: str, path: str = "/users/ada") -> str:
    return PortalClient(backend.make_app(), who).get(path).text


def form_of(backend: FakeBackend, who: str, path: str = "/users/ada") -> ShownForm:
    form = find_form(show(backend, who, path))
    assert form is not None
    return form


def fields_for(who: str, wish: str = "stop", issued: int = NOW) -> dict[str, str]:
    """Compute the fields of a user's form."""
    digest = hmac.digest(SECRET, f"{issued} {who}".encode(), "sha256").hex()
    return {"csrf_token": f"{issued}.{digest}", "wish": wish}


def test_page_shows_whether_the_digest_is_sent_and_a_button_to_change_it(backend: FakeBackend) -> None:
    sent, form = Page(show(backend, "ada")), form_of(backend, "ada")
    assert "Weekly digest If this cluster sends digests, you get a weekly mail about your jobs" in sent.text
    assert ShownForm(PATH, fields_for("ada", "stop"), ("Stop the weekly digest",)) == form
    assert {"id": "digest"} in sent.all("h2")
    assert {"aria-labelledby": "digest"} in sent.all("section")

    backend.opt_outs.opted_out.add("ada")

    stopped, form = Page(show(backend, "ada")), form_of(backend, "ada")
    assert "Weekly digest You do not get the weekly digest." in stopped.text
    assert ShownForm(PATH, fields_for("ada", "send"), ("Send the weekly digest again",)) == form


def test_form_changes_the_setting_and_returns_to_the_page(backend: FakeBackend) -> None:
    form = form_of(backend, "ada")
    answer = post(backend.make_app(), form.action, form.fields, "ada")
    assert (303, "/users/ada#digest") == (answer.status_code, answer.headers["location"])
    assert {"ada"} == backend.opt_outs.opted_out

    form = form_of(backend, "ada")
    assert 303 == post(backend.make_app(), form.action, form.fields, "ada").status_code
    assert set() == backend.opt_outs.opted_out
    assert [] == backend.audited


def test_submitting_a_form_twice_is_harmless(backend: FakeBackend) -> None:
    app = backend.make_app()
    answers = [post(app, PATH, fields_for("ada"), "ada").status_code for _ in range(2)]

    assert ([303, 303], {"ada"}) == (answers, backend.opt_outs.opted_out)


def test_changes_by_admins_for_others_are_audited(backend: FakeBackend) -> None:
    page, form = Page(show(backend, "root")), form_of(backend, "root")
    assert "If this cluster sends digests, ada gets a weekly mail about their jobs" in page.text
    backend.audited.clear()

    post(backend.make_app(), form.action, form.fields, "root")
    post(backend.make_app(), form.action, {**form.fields, "wish": "send"}, "root")
    post(backend.make_app(), form.action, form.fields, "root")

    route = "/users/{name:path}/digest"
    # The jobs were submitted on 2026-09-21; the clock is three days later.
    subjects = [f"digest of ada: {wish}, 2026-09-24" for wish in ("stop", "send", "stop")]
    assert [("root", route, subject) for subject in subjects] == [
        (who, path, subject[: len(expected)])
        for (who, path, subject), expected in zip(backend.audited, subjects, strict=True)
    ]
    assert {"ada"} == backend.opt_outs.opted_out
    assert "ada does not get the weekly digest." in Page(show(backend, "root")).text


def test_changes_by_admins_for_themselves_are_not_audited(backend: FakeBackend) -> None:
    assert 303 == post(backend.make_app(), "/users/root/digest", fields_for("root"), "root").status_code
    assert ({"root"}, []) == (backend.opt_outs.opted_out, backend.audited)


@pytest.mark.parametrize("who", ["sue", "cora"])
def test_viewers_without_permission_have_no_button_and_change_nothing(backend: FakeBackend, who: str) -> None:
    assert "Weekly digest" not in show(backend, who)
    assert None is find_form(show(backend, who))

    answer = post(backend.make_app(), PATH, fields_for(who), who)

    assert (403, set()) == (answer.status_code, backend.opt_outs.opted_out)
    assert "Only this user and the administrators of the portal can change this setting." in Page(answer.text).text


def test_support_can_stop_their_own_digest(backend: FakeBackend) -> None:
    form = form_of(backend, "sue", "/users/sue")

    assert 303 == post(backend.make_app(), form.action, form.fields, "sue").status_code
    assert {"sue"} == backend.opt_outs.opted_out


def test_account_has_no_digest_form(backend: FakeBackend) -> None:
    assert None is find_form(show(backend, "root", "/accounts/physics"))


@pytest.mark.parametrize("who", ["eve", "root"])
def test_absent_user_is_not_found_by_page_and_form(backend: FakeBackend, who: str) -> None:
    shown = PortalClient(backend.make_app(), who).get("/users/absent")
    sent = post(backend.make_app(), "/users/absent/digest", fields_for(who), who)

    assert (404, shown.content) == (sent.status_code, sent.content)
    assert (set(), []) == (backend.opt_outs.opted_out, backend.audited)


def test_inaccessible_user_looks_like_an_absent_one(backend: FakeBackend) -> None:
    inaccessible = post(backend.make_app(), PATH, fields_for("eve"), "eve")
    absent = post(backend.make_app(), "/users/absent/digest", fields_for("eve"), "eve")

    assert (404, absent.content, set()) == (inaccessible.status_code, inaccessible.content, backend.opt_outs.opted_out)


@pytest.mark.parametrize(
    "fields",
    [
        {"wish": "stop"},
        {**fields_for("ada"), "csrf_token": "1.x"},
        fields_for("bob"),
        fields_for("ada", issued=NOW - 12 * 3600 - 1),
        fields_for("ada", issued=NOW + 301),
    ],
    ids=["none", "malformed", "of another user", "old", "of the future"],
)
def test_form_without_a_valid_token_is_rejected(backend: FakeBackend, fields: dict[str, str]) -> None:
    answer = post(backend.make_app(), PATH, fields, "ada")

    assert (403, set()) == (answer.status_code, backend.opt_outs.opted_out)
    assert "Reload the page" in answer.text


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}])
def test_form_of_another_site_is_rejected_even_with_a_valid_token(
    backend: FakeBackend, headers: dict[str, str]
) -> None:
    answer = post(backend.make_app(), PATH, fields_for("ada"), "ada", headers=headers)

    assert (403, set()) == (answer.status_code, backend.opt_outs.opted_out)


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "same-origin"}, {"origin": "http://portal.test"}])
def test_headers_of_our_own_form_are_accepted(backend: FakeBackend, headers: dict[str, str]) -> None:
    assert 303 == post(backend.make_app(), PATH, fields_for("ada"), "ada", headers=headers).status_code


def test_api_token_needs_no_form_token(backend: FakeBackend) -> None:
    answer = post(backend.make_app(), PATH, {"wish": "stop"}, "ada", headers={"authorization": "Bearer x"})

    assert (303, {"ada"}) == (answer.status_code, backend.opt_outs.opted_out)


@pytest.mark.parametrize("fields", [{"csrf_token": "x"}, {"wish": "toggle"}, {}])
def test_invalid_choice_is_rejected(backend: FakeBackend, fields: dict[str, str]) -> None:
    answer = post(backend.make_app(), PATH, fields, "ada")

    assert (422, set()) == (answer.status_code, backend.opt_outs.opted_out)
    assert "wish: " in answer.text


def test_links_change_nothing(backend: FakeBackend) -> None:
    fields = fields_for("ada")
    query = f"?wish=stop&csrf_token={fields['csrf_token']}"

    assert 404 == PortalClient(backend.make_app(), "ada").get(f"{PATH}{query}").status_code
    assert 422 == post(backend.make_app(), f"{PATH}{query}", {}, "ada").status_code
    assert 405 == post(backend.make_app(), "/users/ada", fields, "ada").status_code
    assert set() == backend.opt_outs.opted_out


def test_read_only_archive_is_an_error(backend: FakeBackend) -> None:
    backend.opt_outs.error = ArchiveError("the archive is read-only")

    assert 503 == post(backend.make_app(), PATH, fields_for("ada"), "ada").status_code


def test_redirect_includes_the_base_path(backend: FakeBackend) -> None:
    backend.settings = PortalSettings(base_path="/portal")
    form = form_of(backend, "ada", "/portal/users/ada")

    answer = post(backend.make_app(), form.action, form.fields, "ada")

    assert "/portal/users/ada/digest" == form.action
    assert (303, "/portal/users/ada#digest") == (answer.status_code, answer.headers["location"])


def test_name_with_a_slash_works(backend: FakeBackend) -> None:
    backend.archive.save([make_report(make_record(4990, user="lab/ada"))])
    form = form_of(backend, "root", "/users/lab%2Fada")

    answer = post(backend.make_app(), form.action, form.fields, "root")

    assert "/users/lab%2Fada/digest" == form.action
    assert (303, "/users/lab%2Fada#digest") == (answer.status_code, answer.headers["location"])
    assert {"lab/ada"} == backend.opt_outs.opted_out


def test_middleware_allows_the_form(backend: FakeBackend) -> None:
    app = protect(backend.make_app(), identity_header=backend.settings.proxy_header)
    answer = post(app, PATH, fields_for("ada"), "ada")

    assert (303, {"ada"}) == (answer.status_code, backend.opt_outs.opted_out)
    assert "form-action 'self'" in answer.headers["content-security-policy"]
    assert "private, no-store" == answer.headers["cache-control"]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_large_form_is_rejected(backend: FakeBackend, kind: str) -> None:
    app = protect(backend.make_app(), identity_header=backend.settings.proxy_header)
    scope = make_scope((USER_HEADER, "ada"), ("content-type", kind), method="POST", path=PATH)
    start = b'--x\r\nContent-Disposition: form-data; name="wish"\r\n\r\n' if "boundary" in kind else b"wish="

    sent = call(app, scope, [start, b"a" * 40_000, b"a" * 40_000])

    assert (413, b"The request body is larger than 65536 bytes.\n") == (sent.status, sent.body)


def test_archive_stores_opt_outs_and_audits_every_change(tmp_path: Path) -> None:
    with open_archive_backend(tmp_path, make_jobs()) as backend:
        log = AuditLog(backend.archive.database)
        backend.audit_log = log
        for wish in ("stop", "send", "stop"):
            assert 303 == post(backend.make_app(), PATH, fields_for("root", wish), "root").status_code
            assert (wish == "stop") == backend.opt_outs.is_opted_out("ada")
            backend.seconds += 1
        subjects = [row.subject.partition(",")[0] for row in reversed(log.list_rows())]
    assert [f"digest of ada: {wish}" for wish in ("stop", "send", "stop")] == subjects
