# SPDX-License-Identifier: Apache-2.0
"""A finder for each test."""

from __future__ import annotations

import pytest

from tests.fakes.report_finding import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
