# SPDX-License-Identifier: Apache-2.0
"""The viewer of a demo chooses a role; in every other portal there is no such choice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI

from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.portal.app import make_app
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.errors import Refused
from slurmscope.portal.sign_in.identity import VIEW_COOKIE, VIEW_PATH, DemoView, ViewAs
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.up.demo import make_views
from tests.fakes.portal_backend import USER_HEADER, make_backend
from tests.fakes.sign_in import STRANGER, make_identifier, make_scope

STAFF = Viewer(name="ada", role=ViewerRole.ADMIN)
HEAD = Viewer(name="ada", coordinates=frozenset({"physics"}))
USER = Viewer(name="ada")
VIEWS = tuple(
    DemoView(name=name, label=name, help="sees", viewer=viewer)
    for name, viewer in (("staff", STAFF), ("coordinator", HEAD), ("user", USER))
)
HOST = ("host", "localhost")


def make_view_as() -> ViewAs:
    return ViewAs(VIEWS, make_identifier(PortalSettings()).identify)


@pytest.mark.parametrize(
    ("cookie", "expected"),
    [
        (None, STAFF),
        ("other=user", STAFF),
        (f"{VIEW_COOKIE}=staff", STAFF),
        (f"a=b; {VIEW_COOKIE}=coordinator", HEAD),
        (f"{VIEW_COOKIE}=user;a=b", USER),
    ],
)
def test_cookie_chooses_the_viewer(cookie: str | None, expected: Viewer) -> None:
    headers = [HOST, *([("cookie", cookie)] if cookie else [])]

    assert expected == make_view_as().identify(make_scope(*headers))


@pytest.mark.parametrize(
    "cookie",
    [
        f"{VIEW_COOKIE}=",
        f"{VIEW_COOKIE}=root",
        f"{VIEW_COOKIE}=Staff",
        f"{VIEW_COOKIE}=user; {VIEW_COOKIE}=staff",
        f"{VIEW_COOKIE}=\xff",
    ],
)
def test_unknown_and_ambiguous_choices_are_refused(cookie: str) -> None:
    with pytest.raises(Refused):
        make_view_as().identify(make_scope(HOST, ("cookie", cookie)))


def test_other_machine_is_refused_whatever_it_chooses() -> None:
    with pytest.raises(Refused):
        make_view_as().identify(make_scope(HOST, ("cookie", f"{VIEW_COOKIE}=user"), client=STRANGER))


def make_demo() -> FastAPI:
    services = make_backend().connect()
    return make_app(replace(services, view_as=ViewAs(VIEWS, services.identify)))


def send(app: FastAPI, path: str, data: dict[str, str] | None = None, **headers: str) -> httpx.Response:
    """Request a page as ada, or submit a form."""
    return asyncio.run(_send(app, path, data, {name.replace("_", "-"): value for name, value in headers.items()}))


async def _send(app: FastAPI, path: str, data: dict[str, str] | None, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://portal.test") as client:
        method = "GET" if data is None else "POST"
        return await client.request(method, path, data=data, headers={USER_HEADER: "ada", **headers})


def test_form_is_on_every_page_and_sets_the_cookie() -> None:
    app = make_demo()
    page = send(app, "/jobs?user=ada")
    answer = send(
        app, VIEW_PATH, {"view": "user"}, referer="http://portal.test/jobs?user=ada", sec_fetch_site="same-origin"
    )

    assert "Demo with simulated data." in page.text
    assert (303, "/jobs?user=ada") == (answer.status_code, answer.headers["location"])
    assert f"{VIEW_COOKIE}=user" in answer.headers["set-cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert 403 == (send(app, "/waste", cookie=f"{VIEW_COOKIE}=user")).status_code
    assert "ada, as user, sees." in (send(app, "/", cookie=f"{VIEW_COOKIE}=user")).text


@pytest.mark.parametrize(
    "referer", ["", "http://evil.example/jobs", "http://portal.test//evil.example", "http://[", "jobs"]
)
def test_form_returns_to_no_other_site(referer: str) -> None:
    answer = send(make_demo(), VIEW_PATH, {"view": "user"}, referer=referer)

    assert (303, "/") == (answer.status_code, answer.headers["location"])


def test_unknown_choice_and_form_of_another_site_are_refused() -> None:
    app = make_demo()
    unknown = send(app, VIEW_PATH, {"view": "root"})
    foreign = send(app, VIEW_PATH, {"view": "user"}, sec_fetch_site="cross-site")
    stuck = send(app, "/", cookie=f"{VIEW_COOKIE}=root")

    assert [403, 403, 403] == [answer.status_code for answer in (unknown, foreign, stuck)]
    assert not any("set-cookie" in answer.headers for answer in (unknown, foreign))
    assert 'value="staff"' in stuck.text, "the way out is on the error page"


def test_other_portals_have_no_choice() -> None:
    app = make_backend().make_app()
    page = send(app, "/", cookie=f"{VIEW_COOKIE}=staff")

    assert 404 == (send(app, VIEW_PATH, {"view": "staff"})).status_code
    assert "Demo with simulated data." not in page.text
    assert "/waste" not in page.text, "ada is not staff, and the cookie does not make her staff"
    assert 403 == (send(app, "/waste", cookie=f"{VIEW_COOKIE}=staff")).status_code


def test_demo_offers_a_person_with_three_kinds_of_rights() -> None:
    cluster = simulate(Shape(nodes=8, jobs=20, seed=3), now=1_700_000_000)
    staff, head, user = (view.viewer for view in make_views(cluster))

    assert {cluster.users[0].name} == {viewer.name for viewer in (staff, head, user)}
    assert (True, False, False) == (staff.is_staff, head.is_staff, user.is_staff)
    assert (frozenset({cluster.accounts[0]}), frozenset()) == (head.coordinates, user.coordinates)
