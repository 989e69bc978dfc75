# SPDX-License-Identifier: Apache-2.0
"""Give tests of pages a desk with some jobs, and one of their owners."""

import pytest

from slurmscope.portal.app import make_app
from tests.fakes.browser import Visitor
from tests.fakes.portal_desk import FakeDesk, make_desk


@pytest.fixture
def desk() -> FakeDesk:
    """Give a desk of its own to each test."""
    return make_desk()


@pytest.fixture
def ada(desk: FakeDesk) -> Visitor:
    """Let ada, who has jobs, look."""
    return Visitor(make_app(desk), "ada")
