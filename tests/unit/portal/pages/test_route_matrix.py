# SPDX-License-Identifier: Apache-2.0
"""Nobody learns from any route what is not theirs (W1).

The matrix is made from the application's own routes: a new one fails here until it is written down who may use it. A
foreign job and an absent one are compared by taking the jobs away and asking again: whoever may not see them must get
the same bytes.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterable, Iterator, Mapping

import httpx
import pytest
from starlette.routing import BaseRoute

from slurmscope.model.report import JobReport
from slurmscope.portal.app import make_app
from slurmscope.portal.web.server import protect
from tests.fakes.portal_desk import PEOPLE, WHO, make_desk, make_jobs
from tests.fakes.reports import make_record, make_report

OWNER, OTHER, COORDINATOR, SUPPORT, ADMIN = "ada", "eve", "cora", "sue", "root"
SIGNED_IN = (OWNER, OTHER, COORDINATOR, SUPPORT, ADMIN)
LIVE = "4999"
EVES_JOB = make_report(make_record(4900, user=OTHER, account="biology", name="mine"))


class Open(enum.Enum):
    """Say to whom a route is open."""

    EVERYBODY = "everybody, signed in or not"
    SIGNED_IN = "everybody who is signed in; each sees their own part"
    OWNER = "the owner, coordinators of the account, and staff; for others it is not there"
    STAFF = "staff"
    PERSON = "the person and admins, by a form; others who see the person are refused, for the rest it is not there"


# The addresses that are tried; 4711, the array 4800 and the live job 4999 are ada's, in the account physics.
ROUTES: dict[str, tuple[Open, list[str]]] = {
    "/": (Open.SIGNED_IN, ["/"]),
    "/healthz": (Open.EVERYBODY, ["/healthz"]),
    "/static/{address:path}": (Open.EVERYBODY, []),
    "/api/openapi.json": (Open.EVERYBODY, ["/api/openapi.json"]),
    "/help": (Open.SIGNED_IN, ["/help"]),
    "/cluster": (Open.SIGNED_IN, ["/cluster", "/cluster?format=csv", "/cluster?format=json"]),
    "/cluster/charts.json": (Open.SIGNED_IN, ["/cluster/charts.json"]),
    "/cluster/charts/{name}.svg": (Open.SIGNED_IN, ["/cluster/charts/jobs.svg"]),
    "/cluster/charts/{name}.{format}": (
        Open.SIGNED_IN, ["/cluster/charts/jobs.csv", "/cluster/charts/jobs.json"],
    ),
    "/jobs": (
        Open.SIGNED_IN,
        [
            "/jobs", "/jobs?format=csv", "/jobs?format=json", "/jobs?user=ada", "/jobs?account=physics",
            "/jobs?name=rel", "/jobs?rule=cpu_idle", "/jobs?user=ada&format=csv",
        ],
    ),
    "/search": (
        Open.SIGNED_IN,
        ["/search", *(f"/search?q={text}" for text in ("4711", "4800", "4800_1", "4999", "ada", "physics", "relax"))],
    ),
    "/compare": (Open.OWNER, ["/compare?job=4711&job=4720", "/compare?job=4711&format=csv"]),
    "/compare/charts.json": (Open.OWNER, ["/compare/charts.json?job=4711&job=4720"]),
    "/compare/charts/{name}.svg": (Open.OWNER, ["/compare/charts/cpu.svg?job=4711"]),
    "/waste": (Open.STAFF, ["/waste", "/waste?format=csv"]),
    "/jobs/{shown_id}": (Open.OWNER, ["/jobs/4711", "/jobs/4800", "/jobs/4800_1", f"/jobs/{LIVE}"]),
    "/jobs/{shown_id}/live": (Open.OWNER, ["/jobs/4711/live", f"/jobs/{LIVE}/live"]),
    "/jobs/{shown_id}/charts.json": (Open.OWNER, ["/jobs/4711/charts.json", f"/jobs/{LIVE}/charts.json"]),
    "/jobs/{shown_id}/charts/{name}.svg": (Open.OWNER, ["/jobs/4711/charts/cpu.svg"]),
    "/jobs/{shown_id}/charts/{name}.{format}": (
        Open.OWNER, ["/jobs/4711/charts/cpu.csv", "/jobs/4711/charts/cpu.json"],
    ),
    "/jobs/{shown_id}/nodes.{format}": (Open.OWNER, ["/jobs/4711/nodes.csv", "/jobs/4711/nodes.json"]),
    "/jobs/{shown_id}/report.{format}": (
        Open.OWNER, [f"/jobs/4711/report.{form}" for form in ("txt", "json", "html", "pdf")],
    ),
    "/arrays/{array_id}": (Open.OWNER, ["/arrays/4800", "/arrays/4800?format=csv", "/arrays/4800?format=json"]),
    "/users/{name:path}": (Open.OWNER, ["/users/ada", "/users/ada?format=csv"]),
    "/users/{name:path}/letter": (Open.PERSON, []),
    "/accounts/{name:path}": (Open.OWNER, ["/accounts/physics", "/accounts/physics?format=json"]),
    "/mail/{job_id}": (Open.OWNER, ["/mail/4711"]),
    "/plot/{job_id}/{metric}": (Open.OWNER, ["/plot/4711/jobs_cpu_percent", "/plot/4711/jobs_rss"]),
    "/pie/{job_id}": (Open.OWNER, ["/pie/4711"]),
    "/pie/{job_id}/": (Open.OWNER, ["/pie/4711/"]),
    "/pdf/{job_id}": (Open.OWNER, ["/pdf/4711"]),
    "/api/v1/jobs/{job_id}/usage": (Open.OWNER, ["/api/v1/jobs/4711/usage"]),
    "/api/v1/users/{name}": (Open.OWNER, ["/api/v1/users/ada"]),
    "/api/v2/jobs": (Open.SIGNED_IN, ["/api/v2/jobs", "/api/v2/jobs?user=ada"]),
    "/api/v2/jobs/{shown_id}": (Open.OWNER, ["/api/v2/jobs/4711", "/api/v2/jobs/4800_1"]),
    "/api/v2/jobs/{shown_id}/charts": (Open.OWNER, ["/api/v2/jobs/4711/charts"]),
    "/api/v2/totals": (
        Open.SIGNED_IN,
        [f"/api/v2/totals?by={by}" for by in ("day", "user", "account", "rule", "state")] + ["/api/v2/totals?user=ada"],
    ),
    "/api/v2/cluster": (Open.SIGNED_IN, ["/api/v2/cluster"]),
}  # fmt: skip
CHANGING = {"/users/{name:path}/letter": ("/users/ada/letter", {"wish": "stop"})}
"""Routes that change something, with an address and fields; each of them has to check its form (csrf)."""

CASES = [(open_to, url) for open_to, urls in ROUTES.values() for url in urls]
PERSONAL = [url for open_to, url in CASES if open_to in {Open.OWNER, Open.SIGNED_IN}]
TURNED_AWAY = {Open.OWNER: {OTHER: 404}, Open.STAFF: dict.fromkeys((OWNER, OTHER, COORDINATOR), 403)}


class Portal:
    """Be an application behind its protection, over a desk."""

    def __init__(self, jobs: Iterable[JobReport], live: Mapping[str, JobReport]) -> None:
        self.desk = make_desk(jobs)
        self.desk.live.update(live)
        self._app = protect(make_app(self.desk), self.desk.settings)

    def ask(self, url: str, who: str = "", fields: Mapping[str, str] | None = None) -> httpx.Response:
        """Ask for a page, or send fields as a form."""
        return asyncio.run(self._ask(url, {WHO: who} if who else {}, fields))

    def send(self, url: str, fields: Mapping[str, str], who: str = "") -> httpx.Response:
        """Send a form with the token of our own page."""
        token = self.desk.csrf.issue(PEOPLE[who]) if who else ""
        return self.ask(url, who, {**fields, "csrf_token": token})

    async def _ask(self, url: str, headers: dict[str, str], fields: Mapping[str, str] | None) -> httpx.Response:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://portal.test") as client:
            if fields is None:
                return await client.get(url, headers=headers)
            return await client.post(url, headers=headers, data=dict(fields))


@pytest.fixture(scope="module")
def portal() -> Portal:
    live = make_report(make_record(int(LIVE), state="RUNNING", end_seconds=None))
    return Portal([*make_jobs(), EVES_JOB], {LIVE: live})


@pytest.fixture(scope="module")
def bare_portal() -> Portal:
    """Be the same portal without any job of ada's account."""
    return Portal([EVES_JOB], {})


def walk(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, set[str]]]:
    """Yield path and methods of every route; new releases of FastAPI keep included routers whole."""
    for route in routes:
        router = getattr(route, "original_router", None)
        if router is not None:
            yield from walk(router.routes)
        else:
            yield route.path, set(route.methods or ())  # type: ignore[attr-defined]


def test_it_is_written_down_for_every_route_who_may_use_it() -> None:
    paths = {path for path, _ in walk(make_app(make_desk()).routes)}

    assert set(ROUTES) == paths


def test_no_route_changes_anything_unless_it_is_listed() -> None:
    changing = {path for path, methods in walk(make_app(make_desk()).routes) if methods - {"GET", "HEAD"}}

    assert set(CHANGING) == changing
    assert set(CHANGING) == {path for path, (open_to, _) in ROUTES.items() if open_to is Open.PERSON}


@pytest.mark.parametrize(("url", "fields"), CHANGING.values())
def test_each_role_changes_only_what_it_may(url: str, fields: dict[str, str]) -> None:
    expected = {"": 401, OWNER: 303, OTHER: 404, COORDINATOR: 403, SUPPORT: 403, ADMIN: 303}

    assert expected == {who: Portal(make_jobs(), {}).send(url, fields, who).status_code for who in expected}


@pytest.mark.parametrize(("url", "fields"), CHANGING.values())
def test_nothing_is_changed_without_the_token_of_our_own_page(url: str, fields: dict[str, str]) -> None:
    expected = {"": 401, OWNER: 403, OTHER: 404, COORDINATOR: 403, SUPPORT: 403, ADMIN: 403}

    assert expected == {who: Portal(make_jobs(), {}).ask(url, who, fields).status_code for who in expected}


@pytest.mark.parametrize(("url", "fields"), CHANGING.values())
def test_change_of_what_is_foreign_is_answered_as_if_it_were_not_there(
    portal: Portal, bare_portal: Portal, url: str, fields: dict[str, str]
) -> None:
    shown, absent = portal.send(url, fields, OTHER), bare_portal.send(url, fields, OTHER)

    assert (absent.status_code, absent.headers, absent.content) == (shown.status_code, shown.headers, shown.content)


@pytest.mark.parametrize(("url", "fields"), CHANGING.values())
def test_admin_who_changes_what_is_not_theirs_leaves_a_trace_and_others_do_not(
    url: str, fields: dict[str, str]
) -> None:
    portal = Portal(make_jobs(), {})
    for who in SIGNED_IN:
        portal.send(url, fields, who)

    assert [ADMIN] == [who for who, _, _ in portal.desk.audited]


@pytest.mark.parametrize(("open_to", "url"), CASES)
def test_who_is_not_signed_in_sees_nothing(portal: Portal, open_to: Open, url: str) -> None:
    answer = portal.ask(url)

    assert (200 if open_to is Open.EVERYBODY else 401) == answer.status_code
    assert "private, no-store" == answer.headers["cache-control"]
    assert "relax" not in answer.text


@pytest.mark.parametrize(("open_to", "url"), CASES)
def test_each_role_gets_in_where_it_may(portal: Portal, open_to: Open, url: str) -> None:
    answers = {who: portal.ask(url, who).status_code for who in SIGNED_IN}

    turned_away = {who: status for who, status in answers.items() if status not in {200, 303}}
    assert TURNED_AWAY.get(open_to, {}) == turned_away


@pytest.mark.parametrize("url", PERSONAL)
def test_foreign_job_is_as_if_it_were_not_there(portal: Portal, bare_portal: Portal, url: str) -> None:
    shown, absent = portal.ask(url, OTHER), bare_portal.ask(url, OTHER)

    assert absent.status_code == shown.status_code
    assert absent.headers == shown.headers
    assert absent.content == shown.content


@pytest.mark.parametrize("url", [url for open_to, url in CASES if open_to is Open.OWNER])
def test_owner_does_see_a_difference(portal: Portal, bare_portal: Portal, url: str) -> None:
    # The comparison above would prove nothing if it held for the owner too.
    assert bare_portal.ask(url, OWNER).content != portal.ask(url, OWNER).content


@pytest.mark.parametrize("url", [url for open_to, url in CASES if open_to in {Open.OWNER, Open.STAFF}])
def test_staff_who_look_leave_a_trace_and_others_do_not(portal: Portal, url: str) -> None:
    portal.desk.audited.clear()
    for who in (OWNER, OTHER, COORDINATOR):
        portal.ask(url, who)
    assert [] == portal.desk.audited

    status = portal.ask(url, SUPPORT).status_code

    # A redirection shows nothing yet; where it leads, the look is written down.
    assert ({SUPPORT} if status == 200 else set()) == {who for who, _, _ in portal.desk.audited}
