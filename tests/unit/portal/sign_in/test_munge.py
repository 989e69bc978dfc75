# SPDX-License-Identifier: Apache-2.0
"""The portal accepts munge credentials only if it knows its own address."""

from __future__ import annotations

import pytest

from slurmscope.core.config import Config, load
from slurmscope.core.errors import ConfigError
from slurmscope.portal.settings import portal_sections
from slurmscope.portal.sign_in.munge import open_munge


def _config(**flags: object) -> Config:
    return load(portal_sections(), flags=flags, environment={})


def test_munge_is_off_unless_it_is_set() -> None:
    assert open_munge(_config(), {}) is None


@pytest.mark.parametrize("url", ["", "jobs.example.org"])
def test_munge_needs_the_address_of_the_portal(url: str) -> None:
    config = _config(**{"portal.munge": "true", "mail.portal-url": url})

    with pytest.raises(ConfigError, match=r"portal.munge needs the address that users call the portal by"):
        open_munge(config, {})


def test_munge_with_an_address_is_accepted() -> None:
    config = _config(**{"portal.munge": "true", "mail.portal-url": "https://jobs.example.org/"})

    assert open_munge(config, {}) is not None
