# SPDX-License-Identifier: Apache-2.0
"""All contract tests of an archive, whatever its database: each class of tests has its own fixture ``archive``."""

from __future__ import annotations

from tests.contracts.advice import AdviceContract
from tests.contracts.people import PeopleContract
from tests.contracts.reports import ReportContract
from tests.contracts.retention import RetentionContract
from tests.contracts.visibility import VisibilityContract


class ArchiveContract(
    ReportContract,
    RetentionContract,
    AdviceContract,
    PeopleContract,
    VisibilityContract,
):
    """Test an archive that is empty at first."""
