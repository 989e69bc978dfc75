# SPDX-License-Identifier: Apache-2.0
"""Define how long texts in the archive may be."""

from __future__ import annotations

NAME_LENGTH = 128
CLUSTER_LENGTH = 64
STATE_LENGTH = 32
RULE_LENGTH = 64
SHOWN_LENGTH = 64
TITLE_LENGTH = 512
