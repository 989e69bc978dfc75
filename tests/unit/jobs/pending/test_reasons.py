# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurmscope.cluster.limits import AssociationLimits, Limit, LimitKind, Limits, Qos, QosLimits
from slurmscope.jobs.pending.reasons import NODES_DOWN, REASONS, explain_reason, find_limits, parse_limit_reason

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm/libslurmfull.so")
RESOURCES = ("BB", "Billing", "Cpu", "Energy", "GRES", "License", "Memory", "Node", "Unknown")


def newer_reasons() -> list[str]:
    """Return the reasons that releases after 22.05 added, by the pattern of Slurm's own enumeration."""
    run_minutes = [f"Max{resource}RunMinsPer{who}" for resource in RESOURCES for who in ("Account", "User")]
    return [*run_minutes, "ReservationInvalid", "Constraints", "MaxPoweredUpNodes", "MpiPortsBusy"]


@pytest.mark.skipif(not LIBRARY.exists(), reason="Slurm is not installed here")
def test_every_reason_of_the_installed_slurm_is_explained() -> None:
    texts = re.findall(rb"[A-Za-z]{4,40}(?=\0)", LIBRARY.read_bytes())
    first, last = texts.index(b"PartitionNodeLimit"), texts.index(b"QOSMinBilling")
    words = [text.decode() for text in texts[first : last + 1]]
    assert len(words) > 150
    assert [] == [word for word in words if not explain_reason(word).is_known]


@pytest.mark.parametrize("word", newer_reasons())
def test_reasons_of_newer_releases_are_explained(word: str) -> None:
    assert explain_reason(word).is_known


@pytest.mark.parametrize("word", sorted(REASONS))
def test_explanation_is_a_sentence_and_an_action(word: str) -> None:
    found = explain_reason(word)
    assert found.meaning.endswith(".")
    assert found.action


def test_details_after_the_word_do_not_hide_the_explanation() -> None:
    found = explain_reason("ReqNodeNotAvail, UnavailableNodes:node[03,07-09]")
    assert ("ReqNodeNotAvail", True) == (found.word, found.is_known)
    sentence = f"{NODES_DOWN}, DRAINED or reserved for jobs in higher priority partitions"
    assert explain_reason(sentence).is_known


def test_unknown_reason_is_shown_as_it_is() -> None:
    found = explain_reason("FluxCapacitor")
    assert ("Slurm reports: FluxCapacitor.", False) == (found.meaning, found.is_known)
    assert "Slurm reports no reason." == explain_reason("").meaning


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("AssocGrpCpuLimit", "All jobs of the account together have reached its limit of cores."),
        ("QOSGrpGRES", "All jobs of the QOS together have reached its limit of GPUs or other generic resources."),
        (
            "QOSMaxJobsPerUserLimit",
            "The jobs of the user have reached the limit of running jobs that the QOS of the job allows each user.",
        ),
        (
            "MaxCpuPerAccount",
            "The jobs of the account have reached the limit of cores that the QOS of the job allows accounts.",
        ),
        ("AssocMaxJobsLimit", "The user has reached the limit of running jobs that the account allows each user."),
        ("QOSMaxMemoryPerNode", "The QOS of the job allows one node less memory than the job requests."),
        ("AssocMaxWallDurationPerJobLimit", "The account allows one job less run time than the job requests."),
        ("QOSMinCpuNotSatisfied", "The job requests less than the minimum of cores of its QOS."),
        (
            "AssocGrpCPUMinutesLimit",
            "All jobs of the account together have reached its limit of cores multiplied by run time.",
        ),
        (
            "AssocGrpCPURunMinutesLimit",
            "All jobs of the account together have reached its limit of cores multiplied by remaining run time.",
        ),
    ],
)
def test_limits_are_explained_by_their_parts(word: str, meaning: str) -> None:
    assert meaning == explain_reason(word).meaning


def limit(name: str, tres: str = "", used: float | None = 3.0) -> Limit:
    return Limit(name=name, kind=LimitKind.TRES if tres else LimitKind.JOBS, tres=tres, limit=10.0, used=used)


LIMITS = Limits(
    associations=(
        AssociationLimits(account="physics", limits=(limit("GrpTRES", "cpu"), limit("GrpTRES", "gres/gpu"))),
        AssociationLimits(account="physics", user="ada", limits=(limit("MaxJobs"), limit("GrpTRES", "cpu"))),
        AssociationLimits(account="physics", user="bob", limits=(limit("GrpTRES", "cpu"),)),
        AssociationLimits(account="bio", limits=(limit("GrpTRES", "cpu"), limit("GrpWall"))),
    ),
    qos=(
        Qos(
            name="high",
            limits=(
                QosLimits(limits=(limit("GrpTRESRunMins", "mem"), limit("MaxWallPJ", used=None))),
                QosLimits(user="ada", limits=(limit("MaxTRESPU", "gres/gpu"), limit("MaxSubmitJobsPU"))),
                QosLimits(user="bob", limits=(limit("MaxTRESPU", "gres/gpu"),)),
                QosLimits(account="physics", limits=(limit("MaxJobsPA"), limit("MinTRESPJ", "cpu"))),
            ),
        ),
        Qos(name="normal", limits=(QosLimits(limits=(limit("MaxWallPJ"),)),)),
    ),
)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("AssocGrpCpuLimit", [("account physics", "cpu"), ("ada in account physics", "cpu")]),
        ("AssocGrpGRES", [("account physics", "gres/gpu")]),
        (
            "AssocGrpUnknown",
            [("account physics", "cpu"), ("account physics", "gres/gpu"), ("ada in account physics", "cpu")],
        ),
        ("AssocMaxJobsLimit", [("ada in account physics", "")]),
        ("AssocGrpWallLimit", []),
        ("QOSMaxGRESPerUser", [("QOS high, ada", "gres/gpu")]),
        ("QOSMaxSubmitJobPerUserLimit", [("QOS high, ada", "")]),
        ("QOSGrpMemoryRunMinutes", [("QOS high", "mem")]),
        ("QOSMaxWallDurationPerJobLimit", [("QOS high", "")]),
        ("MaxJobsPerAccount", [("QOS high, physics", "")]),
        ("QOSMinCpuNotSatisfied", [("QOS high, physics", "cpu")]),
    ],
)  # fmt: skip
def test_limit_of_a_reason_is_found_for_its_job_only(word: str, found: list[tuple[str, str]]) -> None:
    reason = parse_limit_reason(word)
    assert reason is not None
    uses = list(find_limits(reason, LIMITS, user="ada", account="physics", qos="high"))
    assert found == [(use.owner, use.limit.tres) for use in uses]


@pytest.mark.parametrize("word", ["Priority", "MaxMemPerLimit", "MaxPoweredUpNodes", "", "GrpCpu"])
def test_other_reasons_name_no_limit(word: str) -> None:
    assert parse_limit_reason(word) is None
