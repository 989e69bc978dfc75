# SPDX-License-Identifier: Apache-2.0
"""TRES lists become numbers in base units, and every device is counted once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.tres import Gres, Tres, parse_tres

MIB = 1024**2


def test_a_job_of_slurm_is_read_whole() -> None:
    assert Tres(
        cpus=4,
        memory_bytes=200 * MIB,
        nodes=1,
        gres=(Gres(name="gpu", model="a100", count=2),),
        others={"billing": 4, "license/matlab": 1},
    ) == parse_tres("cpu=4,mem=200M,node=1,billing=4,gres/gpu=2,gres/gpu:a100=2,license/matlab=1")


@pytest.mark.parametrize(
    ("text", "expected_mib"),
    [("mem=4000", 4000), ("mem=4000M", 4000), ("mem=2.50G", 2560), ("mem=1.50T", 1536 * 1024), ("mem=0", 0)],
)
def test_memory_is_in_bytes_of_binary_units(text: str, expected_mib: int) -> None:
    assert expected_mib * MIB == parse_tres(text).memory_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gres/gpu=8", {("gpu", ""): 8}),
        ("gres/gpu=0", {("gpu", ""): 0}),
        ("gres/gpu:a100=8", {("gpu", "a100"): 8}),
        ("gres/gpu=8,gres/gpu:a100=8", {("gpu", "a100"): 8}),
        ("gres/gpu=8,gres/gpu:a100=4,gres/gpu:h100=1", {("gpu", "a100"): 4, ("gpu", "h100"): 1, ("gpu", ""): 3}),
        ("gres/gpu:a100=4,gres/gpu=2", {("gpu", "a100"): 4}),
        ("gres/shard=3,gres/gpu:t4=1", {("shard", ""): 3, ("gpu", "t4"): 1}),
    ],
)
def test_typed_devices_are_not_counted_again_in_the_total(text: str, expected: dict[tuple[str, str], int]) -> None:
    assert expected == {(found.name, found.model): found.count for found in parse_tres(text).gres}


@pytest.mark.parametrize("text", ["", "(null)", "N/A"])
def test_no_list_is_nothing_measured(text: str) -> None:
    assert Tres() == parse_tres(text)


@pytest.mark.parametrize(
    "text", ["cpu", "=4", "cpu=", "cpu=four", "cpu=-1", "cpu=4,", "cpu=4,cpu=4", "cpu=" + "9" * 400]
)
def test_text_that_slurm_does_not_print_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"resource|size"):
        parse_tres(text)


@given(st.dictionaries(st.sampled_from(["cpu", "node", "billing", "fs/disk", "bb/x", "energy"]), st.integers(0, 2**50)))
def test_what_is_written_is_read_back(amounts: dict[str, int]) -> None:
    tres = parse_tres(",".join(f"{name}={amount}" for name, amount in amounts.items()))

    named = {"cpu": tres.cpus, "node": tres.nodes}
    assert amounts == {**{name: amount for name, amount in named.items() if amount is not None}, **tres.others}


@given(st.dictionaries(st.sampled_from(["a100", "h100", "t4"]), st.integers(0, 1000)), st.integers(0, 1000))
def test_every_device_is_counted_once(typed: dict[str, int], untyped: int) -> None:
    total = sum(typed.values()) + untyped
    entries = [f"gres/gpu={total}", *(f"gres/gpu:{model}={count}" for model, count in typed.items())]

    assert total == sum(found.count for found in parse_tres(",".join(entries)).gres)


@given(st.text("cpumemgres/:=,0123456789.MGK-", max_size=40) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        tres = parse_tres(text)
    except ValueError:
        return
    assert all(amount >= 0 for amount in (*tres.others.values(), *(found.count for found in tres.gres)))
