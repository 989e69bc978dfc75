# SPDX-License-Identifier: Apache-2.0
"""Responses of the API match its OpenAPI document for any request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.generation import GenerationMode
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.fakes.archive_backend import open_archive_backend
from tests.fakes.asgi import call
from tests.fakes.browser import PortalClient
from tests.fakes.forms import post
from tests.fakes.portal_backend import USER_HEADER, make_backend, make_jobs
from tests.fakes.sign_in import make_scope

EXAMPLES = 15

bounded = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """Serve some jobs from a real archive."""
    with open_archive_backend(tmp_path_factory.mktemp("openapi"), make_jobs()) as backend:
        yield backend.make_app()


@pytest.fixture(scope="module")
def api(portal: FastAPI) -> BaseSchema:
    return schemathesis.openapi.from_asgi("/api/openapi.json", portal)


DOCUMENT = make_backend().make_app().openapi()["paths"]
# Operations without parameters have no invalid requests.
OPERATIONS = [
    (path, mode)
    for path in sorted(DOCUMENT)
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or DOCUMENT[path]["get"].get("parameters")
]


@pytest.mark.parametrize(("path", "mode"), OPERATIONS)
@pytest.mark.parametrize("who", ["root", "ada"])
def test_response_matches_the_document(api: BaseSchema, path: str, who: str, mode: GenerationMode) -> None:
    @bounded
    @given(api[path]["GET"].as_strategy(generation_mode=mode))
    def request(case: Case[Any]) -> None:
        # The schema cannot express printable texts and valid dates: those requests get a 400.
        case.call_and_validate(headers={USER_HEADER: who}, excluded_checks=[positive_data_acceptance])

    request()


@pytest.mark.parametrize(
    "path",
    ["/jobs?name={}&user={}", "/jobs?since={}", "/jobs?after={}", "/jobs?worst={}", "/search?q={}", "/users/{}",
     "/accounts/{}?days=7", "/waste?days={}", "/jobs/{}", "/arrays/{}", "/compare?job={}", "/jobs/4711/charts/{}.svg",
     "/jobs/4711/report.{}", "/cluster?format={}", "/plot/4711/{}", "/mail/{}", "/static/{}",
     "/jobs?sort={}&dir={}", "/jobs?before={}&sort=name", "/jobs?sort=cpu&after={}", "/jobs/4711?cores={}&gpus=1",
     "/jobs/4711?memory={}&time={}", "/jobs/4711/zoom?from={}&to={}", "/nodes?name={}&sort=jobs", "/nodes?sort={}",
     "/nodes/{}", "/nodes/n1/charts/{}.svg", "/hours?user={}&account={}", "/hours?days={}", "/suspects?days={}",
     "/savings?table={}&format=csv", "/histogram?metric={}", "/histogram?cpu_min={}", "/cluster?partition={}",
     "/filesystems?format={}"],
)  # fmt: skip
def test_pages_handle_any_text(portal: FastAPI, path: str) -> None:
    visitor = PortalClient(portal, "root")

    @bounded
    @given(st.one_of(st.text(max_size=300), st.from_regex(r"[0-9]{1,12}[-_+]?[0-9]{0,12}", fullmatch=True)))
    def request(text: str) -> None:
        answer = visitor.get(path.replace("{}", quote(text, safe="", errors="surrogatepass")))
        assert answer.status_code in {200, 303, 307, 400, 403, 404, 422}

    request()


@pytest.mark.parametrize("address", ["/users/ada/digest", "/users/{}/digest"])
def test_forms_handle_any_text(portal: FastAPI, address: str) -> None:
    @bounded
    @given(st.text(max_size=300), st.dictionaries(st.sampled_from(["wish", "csrf_token", "x"]), st.text(max_size=300)))
    def send(text: str, fields: dict[str, str]) -> None:
        answer = post(portal, address.replace("{}", quote(text, safe="", errors="surrogatepass")), fields, "root")
        assert answer.status_code in {403, 404, 422}

    send()


@pytest.mark.parametrize(
    "kind", ["", "application/json", "application/x-www-form-urlencoded; charset=utf-7", "multipart/form-data",
             "multipart/form-data; boundary=x"],
)  # fmt: skip
def test_forms_handle_any_bytes(portal: FastAPI, kind: str) -> None:
    scope = make_scope((USER_HEADER, "root"), ("content-type", kind), method="POST", path="/users/ada/digest")
    part = b'--x\r\nContent-Disposition: form-data; name="wish"; filename="a"\r\n\r\nstop\r\n--x--\r\n'

    @bounded
    @given(st.binary(max_size=300) | st.sampled_from([part, part[:-20], b"wish=%ff&csrf_token=%00", b"&" * 5000]))
    def send(body: bytes) -> None:
        assert call(portal, dict(scope), [body]).status in {400, 403, 422}

    send()


def test_document_describes_the_api() -> None:
    assert {"/api/v1/jobs/{job_id}/usage", "/api/v2/jobs", "/api/v2/totals", "/api/v2/cluster"} <= set(DOCUMENT)
