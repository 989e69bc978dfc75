# SPDX-License-Identifier: Apache-2.0
"""Every spelling of generic resources that Slurm prints is understood."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.tres import Gres, parse_gres


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:2", [("gpu", "", 2)]),
        ("gpu:a100:4", [("gpu", "a100", 4)]),
        ("gpu:a100:4(S:0-1)", [("gpu", "a100", 4)]),
        ("gpu:a100:0(IDX:N/A)", [("gpu", "a100", 0)]),
        ("gpu:a100:2(IDX:0-1),shard:a100:3(1/8,2/8)", [("gpu", "a100", 2), ("shard", "a100", 3)]),
        ("gpu:a100_3g.20gb:1(IDX:2),gpu:a100:1(IDX:0,4)", [("gpu", "a100_3g.20gb", 1), ("gpu", "a100", 1)]),
        ("gpu:a100:2(S:0),gpu:a100:2(S:1)", [("gpu", "a100", 4)]),
        ("gpu:(null):2(IDX:0-1),shard:(null):0(0/4,0/4)", [("gpu", "", 2), ("shard", "", 0)]),
        ("gpu", [("gpu", "", 1)]),
        ("gpu:tesla", [("gpu", "tesla", 1)]),
        ("gpu:1080:2", [("gpu", "1080", 2)]),
        ("mps:100", [("mps", "", 100)]),
        ("bandwidth:lustre:no_consume:4G", [("bandwidth", "lustre", 4 * 1024**3)]),
        ("nic:no_consume:2", [("nic", "", 2)]),
        ("tmpdisk:100k,craynetwork:4", [("tmpdisk", "", 102400), ("craynetwork", "", 4)]),
        ("(null)", []),
        ("", []),
    ],
)
def test_spelling_is_understood(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert tuple(Gres(name=name, model=model, count=count) for name, model, count in expected) == parse_gres(text)


@pytest.mark.parametrize(
    "text", [":2", "gpu::2", "gpu:a:b:2", "gpu:2(S:0", "gpu:2)", "gpu:2(S:0)x", ",gpu:2", "gpu:2,,mps:1", "gpu:2,"]
)
def test_text_that_slurm_does_not_print_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="generic resource"):
        parse_gres(text)


NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8).filter(
    lambda name: name not in {"none", "no_consume"}
)
PARENTHESES = st.sampled_from(["", "(S:0)", "(S:0-1)", "(IDX:0,2-3)", "(IDX:N/A)", "(1/4,0/4)"])
ENTRIES = st.tuples(NAMES, st.just("") | NAMES.map("m1-{}".format), st.integers(0, 2**32), PARENTHESES)


@given(st.lists(ENTRIES, min_size=1, max_size=6, unique_by=lambda entry: entry[:2]))
def test_what_is_written_is_read_back(entries: list[tuple[str, str, int, str]]) -> None:
    text = ",".join(
        f"{name}:{model + ':' if model else ''}{count}{parentheses}" for name, model, count, parentheses in entries
    )

    assert [entry[:3] for entry in entries] == [(found.name, found.model, found.count) for found in parse_gres(text)]


@given(st.text("gpu:a1,(S-K)/N", max_size=40) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_gres(text)
    except ValueError:
        return
    assert all(entry.name and entry.count >= 0 for entry in found)
