# SPDX-License-Identifier: Apache-2.0
"""The documentation of the API has every request of the OpenAPI document, its parameters and its fields."""

from __future__ import annotations

from tests.fakes.browser import Page, PortalClient


def test_page_has_every_request_and_parameter(ada: PortalClient) -> None:
    document = ada.get("/api/openapi.json").json()
    page = Page(ada.get("/api").text)
    for path, methods in document["paths"].items():
        assert f"GET {path}" in page.text
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                assert parameter["name"] in page.text
    assert [] == page.open


def test_page_has_the_fields_of_nested_answers_with_their_types(ada: PortalClient) -> None:
    text = " ".join(Page(ada.get("/api").text).text.split())
    assert "jobs[].cpu_ratio number or null" in text
    assert "charts[].lines[].values list of number or null" in text
    assert "404 It does not exist, or the viewer has no access to it." in text
    assert "Default: 50." in text


def test_help_links_to_the_page(ada: PortalClient) -> None:
    assert "/api" in Page(ada.get("/help").text).links
