# SPDX-License-Identifier: Apache-2.0
"""Hold an archive to its promises, whatever database is below it: each class of tests gives its own ``archive``."""

from __future__ import annotations

from tests.promises.advice import AdvicePromises
from tests.promises.people import PeoplePromises
from tests.promises.reports import ReportPromises
from tests.promises.retention import RetentionPromises
from tests.promises.versions import VersionPromises
from tests.promises.visibility import VisibilityPromises


class ArchivePromises(
    ReportPromises,
    RetentionPromises,
    AdvicePromises,
    PeoplePromises,
    VersionPromises,
    VisibilityPromises,
):
    """Test an archive that is empty at first."""
