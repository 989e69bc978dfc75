# SPDX-License-Identifier: Apache-2.0
"""Hold what explains why a job waits, as far as it could be read."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.model.diag import Diag
from slurmscope.model.licenses import Licenses
from slurmscope.model.limits import Limits
from slurmscope.model.nodes import Nodes
from slurmscope.model.reservations import Reservations
from slurmscope.model.waiting import JobPriorities


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """Hold the last reading of each source; None if it was not requested, or cannot be read."""

    nodes: Nodes | None = None
    priorities: JobPriorities | None = None
    diag: Diag | None = None
    limits: Limits | None = None
    licenses: Licenses | None = None
    reservations: Reservations | None = None
