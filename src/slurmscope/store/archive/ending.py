# SPDX-License-Identifier: Apache-2.0
"""Choose jobs by the time of their end."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, func

from slurmscope.store.archive.tables.schema import JOBS


def ended_before(before_seconds: int) -> ColumnElement[bool]:
    """Choose jobs that ended earlier; that they were submitted earlier, too, is what the index is by."""
    end_seconds = func.coalesce(JOBS.c.end_seconds, JOBS.c.submit_seconds)
    return and_(JOBS.c.submit_seconds < before_seconds, end_seconds < before_seconds, JOBS.c.is_unfinished.is_(False))
