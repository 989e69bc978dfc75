# SPDX-License-Identifier: Apache-2.0
"""Parts of Slurm's own samples that no parser may accept, in whichever format they arrive."""

from __future__ import annotations

WRONG_PARTS = (
    (b"job=12", b"job="),
    (b"job=12", b"job=1_2"),
    (b"job=12", b"job=123456789012345678901"),
    (b"step=0", b"step=0.1"),
    (b"step=0", b"step=%C2%B2"),
    (b"task=1", b"task=one"),
)
"""Parts as the captured samples of the tests have them, each with a wrong one in its place."""
