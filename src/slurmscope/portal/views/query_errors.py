# SPDX-License-Identifier: Apache-2.0
"""Define the error of an invalid query string."""

from __future__ import annotations


class BadQuery(Exception):
    """The query string is invalid; the message says why."""
