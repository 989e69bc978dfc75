# SPDX-License-Identifier: Apache-2.0
"""Slurm's variables name GPUs in several ways; only what is certain is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.gpu.attribution import ENVIRONMENT_NAMES, Claim, Numbering, claim_from_environment
from slurmscope.node.gpu.records import Gpu, Vendor

UUIDS = tuple(f"GPU-{letter * 8}-0000-4000-8000-000000000000" for letter in "abcd")
SAME = tuple(Gpu(index=number, minor=number, uuid=uuid) for number, uuid in enumerate(UUIDS))
TURNED = tuple(Gpu(index=number, minor=3 - number, uuid=uuid) for number, uuid in enumerate(UUIDS))
A, B, C, D = UUIDS


def claim(
    environment: Mapping[str, str], gpus: Sequence[Gpu] = SAME, numbering: Numbering = Numbering.AUTO
) -> Claim | None:
    return claim_from_environment(environment, gpus, numbering)


def some(*uuids: str, is_complete: bool = False, unresolved: int = 0) -> Claim:
    return Claim(uuids=frozenset(uuids), is_complete=is_complete, unresolved=unresolved)


def test_environment_without_gpus_claims_nothing() -> None:
    assert claim({}) is None
    assert claim({"SLURM_JOB_GPUS": "", "CUDA_VISIBLE_DEVICES": ""}) is None
    assert claim({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}) is None


def test_numbers_of_the_job_are_complete() -> None:
    assert some(A, C, is_complete=True) == claim({"SLURM_JOB_GPUS": "0,2", "SLURM_JOB_NUM_NODES": "1"})


def test_numbers_of_more_than_one_digit_are_whole_numbers() -> None:
    many = [Gpu(index=number, minor=number, uuid=f"GPU-{number}") for number in range(12)]
    assert some("GPU-10", is_complete=True) == claim({"SLURM_JOB_GPUS": "10"}, many)


def test_numbers_of_the_batch_script_count_on_its_own_node_only() -> None:
    batch = {"SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NUM_NODES": "2"}
    assert some(A, B, is_complete=True) == claim(batch)
    # srun has carried the variable of the first node to the second, where the step has other GPUs.
    assert some(C, D) == claim({**batch, "SLURM_STEP_ID": "0", "SLURM_STEP_GPUS": "2,3"})
    assert claim({**batch, "SLURM_STEP_ID": "0"}) is None


def test_gpus_of_a_step_are_not_all_of_the_job() -> None:
    assert some(B) == claim({"SLURM_STEP_GPUS": "1", "SLURM_STEP_ID": "0"})


def test_numbers_of_render_nodes_count_from_zero() -> None:
    amd = [Gpu(index=n, minor=128 + n, uuid=uuid, vendor=Vendor.AMD) for n, uuid in enumerate(UUIDS)]
    assert some(A, C, unresolved=1) == claim({"SLURM_JOB_GPUS": "0,2,9"}, amd)
    # The order by PCI address differs from that of the device files.
    turned = [replace(gpu, minor=131 - gpu.index) for gpu in amd]
    assert some(unresolved=1) == claim({"SLURM_JOB_GPUS": "0"}, turned)
    assert some(D, is_complete=True) == claim({"SLURM_JOB_GPUS": "0"}, turned, Numbering.MINOR)


def test_numbers_that_mean_two_gpus_are_left_open() -> None:
    assert some(unresolved=2) == claim({"SLURM_JOB_GPUS": "0,1"}, TURNED)


@pytest.mark.parametrize(("numbering", "expected"), [(Numbering.INDEX, A), (Numbering.MINOR, D)])
def test_site_can_say_what_numbers_mean(numbering: Numbering, expected: str) -> None:
    assert some(expected, is_complete=True) == claim({"SLURM_JOB_GPUS": "0"}, TURNED, numbering)


def test_local_numbers_of_the_job_are_not_used() -> None:
    assert claim({"CUDA_VISIBLE_DEVICES": "0,1"}) is None


@pytest.mark.parametrize("text", [B, B[:12], f"0,{B}", f" {B} "])
def test_uuids_are_found_wherever_they_are(text: str) -> None:
    assert some(B) == claim({"CUDA_VISIBLE_DEVICES": text})


def test_name_that_fits_two_gpus_or_none_is_left_open() -> None:
    assert some(unresolved=3) == claim({"CUDA_VISIBLE_DEVICES": "GPU-,GPU-ffffffff,all"})


def test_number_that_no_gpu_has_makes_the_claim_incomplete() -> None:
    assert some(A, unresolved=1) == claim({"SLURM_JOB_GPUS": "0,9"})


def test_numbers_are_left_open_where_gpus_are_cut() -> None:
    cut = [
        *SAME[:1],
        Gpu(index=1, minor=1, uuid="MIG-bbbbbbbb-0000", parent_uuid=B, gpu_instance=1, compute_instance=0),
    ]
    assert some("MIG-bbbbbbbb-0000", unresolved=1) == claim(
        {"SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "MIG-bbbbbbbb-0000"}, cut
    )


@given(st.dictionaries(st.sampled_from(ENVIRONMENT_NAMES), st.text(max_size=20)))
def test_any_environment_gives_known_gpus_only(environment: dict[str, str]) -> None:
    found = claim_from_environment(environment, SAME)
    assert found is None or found.uuids <= set(UUIDS)


def test_digit_that_is_no_number_names_no_gpu() -> None:
    claim = claim_from_environment({"SLURM_STEP_GPUS": "\u00b2"}, [Gpu(index=2, uuid="GPU-aaaaaaaa")], Numbering.AUTO)

    assert claim is not None
    assert (frozenset(), 1) == (claim.uuids, claim.unresolved)
