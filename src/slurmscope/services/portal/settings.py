# SPDX-License-Identifier: Apache-2.0
"""List the settings of the portal and its reporter."""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.portal.settings import PortalSettings
from slurmscope.services.reporting.archiving.settings import ReporterSettings
from slurmscope.services.reporting.settings import report_sections
from slurmscope.settings import Section


def portal_sections() -> Iterator[Section]:
    """Yield the settings of the portal and its reporter."""
    yield Section(name="portal", type=PortalSettings)
    yield Section(name="reporter", type=ReporterSettings)
    yield from report_sections()
