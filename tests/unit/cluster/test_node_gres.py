# SPDX-License-Identifier: Apache-2.0
"""What a node has and what is in use of it are set side by side."""

from __future__ import annotations

import pytest

from slurmscope.cluster.sinfo import NodeGres, parse_node_gres


def gres(name: str, model: str, total: int, used: int) -> NodeGres:
    return NodeGres(name=name, model=model, total=total, used=used)


@pytest.mark.parametrize(
    ("total", "used", "expected"),
    [
        ("", "", ()),
        ("(null)", "gpu:0", ()),
        ("gpu:a100:4(S:0-1)", "gpu:a100:3(IDX:0-2)", (gres("gpu", "a100", 4, 3),)),
        ("gpu:4", "gpu:a100:3(IDX:0-2)", (gres("gpu", "", 4, 3),)),
        ("gpu:a100:4", "gpu:(null):3(IDX:0-2)", (gres("gpu", "a100", 4, 3),)),
        ("gpu:a100:2,gpu:t4:2", "gpu:t4:1(IDX:0)", (gres("gpu", "a100", 2, 0), gres("gpu", "t4", 2, 1))),
        ("gpu:a100:2,gpu:t4:2", "gpu:1", (gres("gpu", "a100", 2, 0), gres("gpu", "t4", 2, 0), gres("gpu", "", 0, 1))),
        ("", "shard:3", (gres("shard", "", 0, 3),)),
    ],
)
def test_counts_find_their_counterparts(total: str, used: str, expected: tuple[NodeGres, ...]) -> None:
    assert expected == parse_node_gres(total, used)


@pytest.mark.parametrize(("total", "used"), [("gpu:a:b:c", ""), ("", "gpu:a:b:c")])
def test_text_that_slurm_does_not_print_is_none(total: str, used: str) -> None:
    assert parse_node_gres(total, used) is None
