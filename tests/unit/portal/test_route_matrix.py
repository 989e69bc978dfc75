# SPDX-License-Identifier: Apache-2.0
"""No route reveals data without access to it (W1).

The matrix is checked against the application's routes: a new route fails here until its access is declared. To compare
an inaccessible job with an absent one, requests are repeated without the jobs: viewers without access must get the same
bytes.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterable, Iterator, Mapping

import httpx
import pytest
from starlette.routing import BaseRoute

from slurmscope.jobs.report import JobReport
from slurmscope.jobs.script import JobScript
from slurmscope.portal.web.middleware import protect
from slurmscope.reports.page_paths import add_cluster
from tests.fakes.portal_backend import USER_HEADER, VIEWERS, make_backend, make_jobs
from tests.fakes.reports import START, make_record, make_report, make_two_node_report
from tests.fakes.waiting import make_queue, make_waiting

OWNER, OTHER, COORDINATOR, SUPPORT, ADMIN = "ada", "eve", "cora", "sue", "root"
SIGNED_IN = (OWNER, OTHER, COORDINATOR, SUPPORT, ADMIN)
LIVE = "4999"
PART = f"from={START + 600}&to={START + 3600}"
EVES_JOB = make_report(make_record(4900, user=OTHER, account="biology", name="mine", nodes=("n9",)))


class Access(enum.Enum):
    """Declare who has access to a route."""

    PUBLIC = "no sign-in needed"
    SIGNED_IN = "all signed-in viewers; each sees their own part"
    OWNER = "the owner, coordinators of the account, and staff; 404 for others"
    ONLY_OWNER = "the owner; 404 for all others"
    STAFF = "staff"
    STAFF_FORM = "staff, by a form; 403 for others"
    OWN_FORM = "all signed-in viewers, by a form, for themselves"
    PERSON = "the user and admins, by a form; 403 for others with access to the user's jobs, 404 for the rest"


# Addresses by route; 4711, the array 4800 and the live job 4999 belong to ada, in the account physics.
ROUTES: dict[str, tuple[Access, list[str]]] = {
    "/": (Access.SIGNED_IN, ["/"]),
    "/healthz": (Access.PUBLIC, ["/healthz"]),
    "/static/{address:path}": (Access.PUBLIC, []),
    "/api/openapi.json": (Access.PUBLIC, ["/api/openapi.json"]),
    "/help": (Access.SIGNED_IN, ["/help"]),
    "/api": (Access.SIGNED_IN, ["/api"]),
    "/cluster": (
        Access.SIGNED_IN,
        ["/cluster", "/cluster?format=csv", "/cluster?format=json", "/cluster?format=csv&table=waiting"],
    ),
    "/cluster/now": (Access.SIGNED_IN, ["/cluster/now"]),
    "/cluster/charts.json": (Access.SIGNED_IN, ["/cluster/charts.json"]),
    "/cluster/charts/{name}.svg": (Access.SIGNED_IN, ["/cluster/charts/jobs.svg"]),
    "/cluster/charts/{name}.{format}": (
        Access.SIGNED_IN, ["/cluster/charts/jobs.csv", "/cluster/charts/jobs.json"],
    ),
    "/jobs": (
        Access.SIGNED_IN,
        [
            "/jobs", "/jobs?format=csv", "/jobs?format=json", "/jobs?user=ada", "/jobs?account=physics",
            "/jobs?name=rel", "/jobs?cpu_max=90", "/jobs?rule=cpu_idle", "/jobs?user=ada&format=csv",
        ],
    ),
    "/search": (
        Access.SIGNED_IN,
        ["/search", *(f"/search?q={text}" for text in ("4711", "4800", "4800_1", "4999", "ada", "physics", "relax"))],
    ),
    "/nodes": (Access.SIGNED_IN, ["/nodes", "/nodes?format=csv", "/nodes?state=mixed&sort=jobs"]),
    "/compare": (Access.OWNER, ["/compare?job=4711&job=4720", "/compare?job=4711&format=csv"]),
    "/compare/charts.json": (Access.OWNER, ["/compare/charts.json?job=4711&job=4720"]),
    "/compare/charts/{name}.svg": (Access.OWNER, ["/compare/charts/cpu.svg?job=4711"]),
    "/waste": (Access.STAFF, ["/waste", "/waste?format=csv"]),
    "/histogram": (
        Access.SIGNED_IN,
        ["/histogram", "/histogram?metric=run&user=ada", "/histogram?format=csv", "/histogram?format=json&user=ada"],
    ),
    "/tags": (Access.STAFF, ["/tags"]),
    "/staff/notes": (Access.STAFF_FORM, []),
    "/views": (Access.OWN_FORM, []),
    "/views/delete": (Access.OWN_FORM, []),
    "/savings": (Access.SIGNED_IN, ["/savings", "/savings?format=csv", "/savings?table=month&format=json"]),
    "/suspects": (Access.STAFF, ["/suspects", "/suspects?format=csv"]),
    "/hours": (Access.SIGNED_IN, ["/hours", "/hours?format=csv", "/hours?user=ada&format=json"]),
    "/filesystems": (Access.STAFF, ["/filesystems", "/filesystems?format=csv", "/filesystems?format=json"]),
    "/jobs/{shown_id}": (
        Access.OWNER,
        [
            "/jobs/4711", "/jobs/4711?cores=2&time=60", "/jobs/4800", "/jobs/4800_1", f"/jobs/{LIVE}", "/jobs/4998",
            "/jobs/4997", "/jobs/4997_3",
        ],
    ),
    "/jobs/{shown_id}/script": (Access.ONLY_OWNER, ["/jobs/4711/script", f"/jobs/{LIVE}/script"]),
    "/jobs/{shown_id}/live": (Access.OWNER, ["/jobs/4711/live", f"/jobs/{LIVE}/live"]),
    "/jobs/{shown_id}/waiting": (Access.OWNER, ["/jobs/4998/waiting", "/jobs/4997_3/waiting"]),
    "/jobs/{shown_id}/charts.json": (
        Access.OWNER, ["/jobs/4711/charts.json", f"/jobs/{LIVE}/charts.json", f"/jobs/4711/charts.json?{PART}"],
    ),
    "/jobs/{shown_id}/zoom": (
        Access.OWNER, ["/jobs/4711/zoom", f"/jobs/4711/zoom?{PART}", f"/jobs/{LIVE}/zoom?{PART}"],
    ),
    "/jobs/{shown_id}/charts/{name}.svg": (
        Access.OWNER, ["/jobs/4711/charts/cpu.svg", f"/jobs/4711/charts/cpu.svg?{PART}"],
    ),
    "/jobs/{shown_id}/charts/{name}.{format}": (
        Access.OWNER, ["/jobs/4711/charts/cpu.csv", "/jobs/4711/charts/cpu.json"],
    ),
    "/jobs/{shown_id}/heat/{name}.svg": (Access.OWNER, ["/jobs/4740/heat/cpu.svg", f"/jobs/4740/heat/cpu.svg?{PART}"]),
    "/jobs/{shown_id}/heat/{name}.{format}": (Access.OWNER, ["/jobs/4740/heat/cpu.csv", "/jobs/4740/heat/cpu.json"]),
    "/jobs/{shown_id}/nodes.{format}": (Access.OWNER, ["/jobs/4711/nodes.csv", "/jobs/4711/nodes.json"]),
    "/jobs/{shown_id}/report.{format}": (
        Access.OWNER, [f"/jobs/4711/report.{suffix}" for suffix in ("txt", "json", "html", "pdf")],
    ),
    "/arrays/{array_id}": (
        Access.OWNER, ["/arrays/4800", "/arrays/4997", "/arrays/4800?format=csv", "/arrays/4800?format=json"],
    ),
    "/nodes/{name}": (Access.OWNER, ["/nodes/n1"]),
    "/nodes/{name}/charts.json": (Access.OWNER, ["/nodes/n1/charts.json"]),
    "/nodes/{name}/charts/{chart_name}.svg": (Access.OWNER, ["/nodes/n1/charts/cpu.svg"]),
    "/users/{name:path}": (Access.OWNER, ["/users/ada", "/users/ada?format=csv"]),
    "/users/{name:path}/digest": (Access.PERSON, []),
    "/accounts/{name:path}": (Access.OWNER, ["/accounts/physics", "/accounts/physics?format=json"]),
    "/mail/{job_id}": (Access.OWNER, ["/mail/4711"]),
    "/plot/{job_id}/{metric}": (Access.OWNER, ["/plot/4711/jobs_cpu_percent", "/plot/4711/jobs_rss"]),
    "/d-solo/slurmscope/job": (Access.OWNER, ["/d-solo/slurmscope/job?panelId=1&var-jobid=4711"]),
    "/d/slurmscope/job": (Access.OWNER, ["/d/slurmscope/job?var-jobid=4711"]),
    "/pie/{job_id}": (Access.OWNER, ["/pie/4711"]),
    "/pie/{job_id}/": (Access.OWNER, ["/pie/4711/"]),
    "/pdf/{job_id}": (Access.OWNER, ["/pdf/4711"]),
    "/api/v1/jobs/{job_id}/usage": (Access.OWNER, ["/api/v1/jobs/4711/usage"]),
    "/api/v1/users/{name}": (Access.OWNER, ["/api/v1/users/ada"]),
    "/api/v2/me": (Access.SIGNED_IN, ["/api/v2/me"]),
    "/api/v2/jobs": (
        Access.SIGNED_IN,
        [f"/api/v2/jobs{query}" for query in ("", "?user=ada", "?ids=4711,4800,4999", "?cpu_max=90", "?node=n1")],
    ),
    "/api/v2/jobs/{shown_id}": (Access.OWNER, ["/api/v2/jobs/4711", "/api/v2/jobs/4800_1"]),
    "/api/v2/jobs/{shown_id}/waiting": (Access.OWNER, ["/api/v2/jobs/4998/waiting", "/api/v2/jobs/4997_3/waiting"]),
    "/api/v2/jobs/{shown_id}/script": (Access.ONLY_OWNER, ["/api/v2/jobs/4711/script"]),
    "/api/v2/jobs/{shown_id}/charts": (
        Access.OWNER, ["/api/v2/jobs/4711/charts", f"/api/v2/jobs/4711/charts?{PART}&step=60"],
    ),
    "/api/v2/jobs/{shown_id}/what-if": (Access.OWNER, ["/api/v2/jobs/4711/what-if?memory=1G"]),
    "/api/v2/totals": (
        Access.SIGNED_IN,
        [f"/api/v2/totals?by={by}" for by in ("day", "user", "account", "rule", "state")] + ["/api/v2/totals?user=ada"],
    ),
    "/api/v2/cluster": (Access.SIGNED_IN, ["/api/v2/cluster"]),
    "/api/v2/savings": (Access.SIGNED_IN, [f"/api/v2/savings?by={by}" for by in ("rule", "user", "month")]),
    "/api/v2/histogram": (
        Access.SIGNED_IN, [f"/api/v2/histogram{query}" for query in ("", "?metric=run&user=ada", "?cpu_max=90")],
    ),
    "/api/v2/waiting-times": (Access.SIGNED_IN, ["/api/v2/waiting-times", "/api/v2/waiting-times?partition=gpu"]),
    "/api/v2/filesystems": (Access.STAFF, ["/api/v2/filesystems"]),
    "/api/v2/nodes/{name}": (Access.OWNER, ["/api/v2/nodes/n1"]),
}  # fmt: skip
STAFF_CHANGING = {
    "/staff/notes": ("/staff/notes", {"kind": "job", "name": "4711", "change": "add-tag", "text": "slow"})
}
OWN_CHANGING = {
    "/views": ("/views", {"name": "mine", "query": "?user=ada"}),
    "/views/delete": ("/views/delete", {"view_id": "1"}),
}
CHANGING = {"/users/{name:path}/digest": ("/users/ada/digest", {"wish": "stop"})}
"""Routes that change something, with an address and form fields; each has to check the form token."""

WAITING = make_queue(
    make_waiting(4998, name="relax"),
    make_waiting(4997, array_job_id=4997, tasks=(range(9),), tasks_text="0-8", name="relax"),
)
CASES = [
    (access, address)
    for access, urls in ROUTES.values()
    for url in urls
    # Every page of one job, array or node also with its cluster; PDF files take long.
    for address in (url, "" if "pdf" in url else add_cluster(url, "lab"))
    if address
]
PERSONAL = [url for access, url in CASES if access in {Access.OWNER, Access.ONLY_OWNER, Access.SIGNED_IN}]
REJECTED = {
    Access.OWNER: {OTHER: 404},
    Access.ONLY_OWNER: dict.fromkeys((OTHER, COORDINATOR, SUPPORT, ADMIN), 404),
    Access.STAFF: dict.fromkeys((OWNER, OTHER, COORDINATOR), 403),
}


class Portal:
    """Serve a fake backend, with the middleware."""

    def __init__(self, jobs: Iterable[JobReport], live: Mapping[str, JobReport]) -> None:
        self.backend = make_backend(jobs)
        self.backend.live.update(live)
        # Pending jobs of ada, in the account physics, if she has any other.
        self.backend.waiting = WAITING if live else make_queue()
        self._app = protect(self.backend.make_app(), identity_header=self.backend.settings.proxy_header)

    def request(self, url: str, who: str = "", fields: Mapping[str, str] | None = None) -> httpx.Response:
        """Request a page, or submit a form."""
        return asyncio.run(self._request(url, {USER_HEADER: who} if who else {}, fields))

    def send(self, url: str, fields: Mapping[str, str], who: str = "") -> httpx.Response:
        """Submit a form with a valid token."""
        token = self.backend.csrf.issue(VIEWERS[who]) if who else ""
        return self.request(url, who, {**fields, "csrf_token": token})

    async def _request(self, url: str, headers: dict[str, str], fields: Mapping[str, str] | None) -> httpx.Response:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://portal.test") as client:
            if fields is None:
                return await client.get(url, headers=headers)
            return await client.post(url, headers=headers, data=dict(fields))


@pytest.fixture(scope="module")
def portal() -> Portal:
    live = make_report(make_record(int(LIVE), state="RUNNING", end_seconds=None))
    portal = Portal([*make_jobs(), make_two_node_report(), EVES_JOB], {LIVE: live})
    portal.backend.scripts.update(dict.fromkeys(("4711", LIVE), JobScript(text="#!/bin/sh\n./relax")))
    return portal


@pytest.fixture(scope="module")
def bare_portal() -> Portal:
    """Make the same portal without jobs of ada's account."""
    return Portal([EVES_JOB], {})


def walk(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, set[str]]]:
    """Yield path and methods of every route; newer FastAPI releases nest included routers."""
    for route in routes:
        router = getattr(route, "original_router", None)
        if router is not None:
            yield from walk(router.routes)
        else:
            yield route.path, set(route.methods or ())  # type: ignore[attr-defined]


def test_access_is_declared_for_every_route() -> None:
    paths = {path for path, _ in walk(make_backend().make_app().routes)}

    assert set(ROUTES) == paths


def test_only_listed_routes_change_anything() -> None:
    changing = {path for path, methods in walk(make_backend().make_app().routes) if methods - {"GET", "HEAD"}}

    assert {*CHANGING, *STAFF_CHANGING, *OWN_CHANGING} == changing
    for forms, expected in (
        (CHANGING, Access.PERSON), (STAFF_CHANGING, Access.STAFF_FORM), (OWN_CHANGING, Access.OWN_FORM),
    ):  # fmt: skip
        assert set(forms) == {path for path, (access, _) in ROUTES.items() if access is expected}


@pytest.mark.parametrize(("url", "fields"), STAFF_CHANGING.values())
def test_only_staff_change_notes_and_with_a_form_token(url: str, fields: dict[str, str]) -> None:
    portal = Portal(make_jobs(), {})
    expected = {"": 401, OWNER: 403, OTHER: 403, COORDINATOR: 403, SUPPORT: 303, ADMIN: 303}

    assert expected == {who: portal.send(url, fields, who).status_code for who in expected}
    assert [SUPPORT, ADMIN] == [who for who, _, _ in portal.backend.audited]
    assert {403} == {portal.request(url, who, fields).status_code for who in SIGNED_IN}
    assert 404 == portal.send(url, {**fields, "name": "1"}, SUPPORT).status_code


@pytest.mark.parametrize(("url", "fields"), OWN_CHANGING.values())
def test_viewers_change_their_own_views_with_a_form_token(url: str, fields: dict[str, str]) -> None:
    portal = Portal(make_jobs(), {})

    assert {"": 401, **dict.fromkeys(SIGNED_IN, 303)} == {
        who: portal.send(url, fields, who).status_code for who in ("", *SIGNED_IN)
    }
    assert {403} == {portal.request(url, who, fields).status_code for who in SIGNED_IN}


@pytest.mark.parametrize(("url", "fields"), CHANGING.values())
def test_each_role_changes_only_what_it_has_access_to(url: str, fields: dict[str, str]) -> None:
    expected = {"": 401, OWNER: 303, OTHER: 404, COORDINATOR: 403, SUPPORT: 403, ADMIN: 303}

    assert expected == {who: Portal(make_jobs(), {}).send(url, fields, who).status_code for who in expected}


@pytest.mark.parametrize(("url", "fields"), CHANGING.values())
def test_nothing_changes_without_a_form_token(url: str, fields: dict[str, str]) -> None:
    expected = {"": 401, OWNER: 403, OTHER: 404, COORDINATOR: 403, SUPPORT: 403, ADMIN: 403}

    assert expected == {who: Portal(make_jobs(), {}).request(url, who, fields).status_code for who in expected}


@pytest.mark.parametrize(("url", "fields"), CHANGING.values())
def test_change_of_an_inaccessible_user_looks_like_an_absent_one(
    portal: Portal, bare_portal: Portal, url: str, fields: dict[str, str]
) -> None:
    shown, absent = portal.send(url, fields, OTHER), bare_portal.send(url, fields, OTHER)

    assert (absent.status_code, absent.headers, absent.content) == (shown.status_code, shown.headers, shown.content)


@pytest.mark.parametrize(("url", "fields"), CHANGING.values())
def test_only_changes_by_admins_for_others_are_audited(url: str, fields: dict[str, str]) -> None:
    portal = Portal(make_jobs(), {})
    for who in SIGNED_IN:
        portal.send(url, fields, who)

    assert [ADMIN] == [who for who, _, _ in portal.backend.audited]


@pytest.mark.parametrize(("access", "url"), CASES)
def test_nothing_is_shown_without_sign_in(portal: Portal, access: Access, url: str) -> None:
    answer = portal.request(url)

    assert (200 if access is Access.PUBLIC else 401) == answer.status_code
    assert "private, no-store" == answer.headers["cache-control"]
    assert "relax" not in answer.text


@pytest.mark.parametrize(("access", "url"), CASES)
def test_each_role_has_the_declared_access(portal: Portal, access: Access, url: str) -> None:
    answers = {who: portal.request(url, who).status_code for who in SIGNED_IN}

    rejected = {who: status for who, status in answers.items() if status not in {200, 303}}
    assert REJECTED.get(access, {}) == rejected


@pytest.mark.parametrize("url", PERSONAL)
def test_inaccessible_job_looks_like_an_absent_one(portal: Portal, bare_portal: Portal, url: str) -> None:
    shown, absent = portal.request(url, OTHER), bare_portal.request(url, OTHER)

    assert absent.status_code == shown.status_code
    assert absent.headers == shown.headers
    assert absent.content == shown.content


@pytest.mark.parametrize("url", [url for access, url in CASES if access in {Access.OWNER, Access.ONLY_OWNER}])
def test_owner_sees_a_difference(portal: Portal, bare_portal: Portal, url: str) -> None:
    # The comparison above would prove nothing if it held for the owner too.
    assert bare_portal.request(url, OWNER).content != portal.request(url, OWNER).content


@pytest.mark.parametrize(
    "url", [url for access, url in CASES if access in {Access.OWNER, Access.ONLY_OWNER, Access.STAFF}]
)
def test_only_staff_access_is_audited(portal: Portal, url: str) -> None:
    portal.backend.audited.clear()
    for who in (OWNER, OTHER, COORDINATOR):
        portal.request(url, who)
    assert [] == portal.backend.audited

    status = portal.request(url, SUPPORT).status_code

    # A redirect shows nothing; its target is audited.
    assert ({SUPPORT} if status == 200 else set()) == {who for who, _, _ in portal.backend.audited}
