# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from slurmscope.portal.app import make_app
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.web.server import protect
from tests.fakes.asgi import call
from tests.fakes.portal_desk import WHO, make_desk
from tests.fakes.sign_in import make_scope


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/jobs/4711", 200), ("/jobs/1", 404), ("/api/v2/jobs", 200), ("/healthz", 200)]
)
def test_head_is_answered_like_get_without_the_body(path: str, status: int) -> None:
    app = protect(make_app(make_desk()), PortalSettings())
    got, asked = (call(app, make_scope((WHO, "ada"), method=method, path=path)) for method in ("GET", "HEAD"))
    assert (status, got.status) == (asked.status, status)
    assert b"" == asked.body
    assert dict(got.headers) == dict(asked.headers)
    assert len(got.body) == int(dict(asked.headers)["content-length"])


def test_other_methods_are_refused_as_before() -> None:
    app = protect(make_app(make_desk()), PortalSettings())
    assert 405 == call(app, make_scope((WHO, "ada"), method="POST", path="/jobs")).status
