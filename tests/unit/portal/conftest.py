# SPDX-License-Identifier: Apache-2.0
"""Provide a backend with some jobs, and a client of one of their owners."""

import pytest

from tests.fakes.browser import PortalClient
from tests.fakes.portal_backend import FakeBackend, make_backend


@pytest.fixture
def backend() -> FakeBackend:
    """Provide a new backend for each test."""
    return make_backend()


@pytest.fixture
def ada(backend: FakeBackend) -> PortalClient:
    """Sign in as ada, who has jobs."""
    return PortalClient(backend.make_app(), "ada")
