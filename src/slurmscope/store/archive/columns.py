# SPDX-License-Identifier: Apache-2.0
"""Define what the tables of the archive have in common."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Integer, LargeBinary, MetaData, String
from sqlalchemy.dialects.mysql import LONGBLOB

from slurmscope.store.archive.lengths import NAME_LENGTH

# Names differ by letter case and by blanks at their end, on every server.
TABLE_OPTIONS: dict[str, Any] = {
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
    "mariadb_engine": "InnoDB",
}
RUN_TYPE = BigInteger().with_variant(Integer, "sqlite")
BODY_TYPE = LargeBinary().with_variant(LONGBLOB, "mysql", "mariadb")

METADATA = MetaData()


def name_type(length: int = NAME_LENGTH) -> String:
    """Return the type of a column with names."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")
