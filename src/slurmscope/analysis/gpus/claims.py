# SPDX-License-Identifier: Apache-2.0
"""Read from a job's environment which GPUs of this node were allocated to it.

Users can change the environment of their processes, so this is the weakest source.
The numbers in ``SLURM_JOB_GPUS`` are Slurm's own. Up to Slurm 20.11 they are the numbers of the device files,
later the positions in gres.conf, which is the order of nvidia-smi with AutoDetect and mostly without. Where both
readings mean the same GPU the number is used; elsewhere the site has to configure which one applies.
``CUDA_VISIBLE_DEVICES`` counts from 0 in each job where devices are constrained: only its UUIDs are usable.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.model.gpus import Gpu

JOB_GPUS = "SLURM_JOB_GPUS"
STEP_GPUS = "SLURM_STEP_GPUS"
VISIBLE = "CUDA_VISIBLE_DEVICES"
STEP_ID = "SLURM_STEP_ID"
NODE_COUNT = "SLURM_JOB_NUM_NODES"
SHARE_SIGNS = ("SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
ENVIRONMENT_NAMES = (JOB_GPUS, STEP_GPUS, VISIBLE, STEP_ID, NODE_COUNT, *SHARE_SIGNS)
"""Environment variables to read from a job's process."""

MOST_WORDS = 256
# A shorter beginning of a UUID may mean any GPU.
_LEAST_UUID = 8


class Numbering(enum.Enum):
    """How Slurm numbers GPUs: as nvidia-smi, as the device files, or only where both agree."""

    AUTO = "auto"
    INDEX = "index"
    MINOR = "minor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Hold the GPUs (by UUID) that a source attributes to a job.

    ``is_complete`` means that the job has no others on this node; ``unresolved`` counts names that match no GPU here.
    """

    uuids: frozenset[str]
    is_complete: bool = False
    unresolved: int = 0


def claim_from_environment(
    environment: Mapping[str, str], gpus: Sequence[Gpu], numbering: Numbering = Numbering.AUTO
) -> Claim | None:
    """Return the GPUs that the environment of one process names; None when it has none of the variables."""
    texts = [environment[STEP_GPUS]] if STEP_GPUS in environment else []
    is_of_job = JOB_GPUS in environment and _is_of_this_node(environment)
    if is_of_job:
        texts.append(environment[JOB_GPUS])
    texts.append(",".join(word for word in _words(environment.get(VISIBLE, "")) if not word.isdecimal()))
    words = {word for text in texts for word in _words(text)}
    if not words:
        return None
    found = {word: resolve(word, gpus, numbering) for word in words}
    uuids = frozenset(gpu.uuid for gpu in found.values() if gpu is not None)
    unresolved = sum(gpu is None for gpu in found.values())
    return Claim(uuids=uuids, is_complete=is_of_job and not unresolved, unresolved=unresolved)


def resolve(word: str, gpus: Sequence[Gpu], numbering: Numbering) -> Gpu | None:
    """Find the one GPU that a number or a UUID means; None when it is none or ambiguous."""
    if not word.isdecimal():
        return _only(gpu for gpu in gpus if len(word) >= _LEAST_UUID and gpu.uuid.startswith(word))
    # Slurm numbers MIG instances and whole GPUs in one sequence, in an order that is unknown here.
    if len(word) > 6 or any(gpu.parent_uuid for gpu in gpus):
        return None
    number = int(word)
    by_index = _only(gpu for gpu in gpus if gpu.index == number)
    by_minor = _only(gpu for gpu in gpus if gpu.minor == number)
    if numbering is Numbering.INDEX:
        return by_index
    if numbering is Numbering.MINOR:
        return by_minor
    return by_index if by_index is by_minor else None


def _is_of_this_node(environment: Mapping[str, str]) -> bool:
    """Return whether SLURM_JOB_GPUS was set on this node: srun passes that of the batch script to all nodes."""
    return environment.get(NODE_COUNT) == "1" or STEP_ID not in environment


def _words(text: str) -> list[str]:
    return [word for part in text.split(",")[:MOST_WORDS] if (word := part.strip()) and word != "NoDevFiles"]


def _only(gpus: Iterable[Gpu]) -> Gpu | None:
    found = list(gpus)
    return found[0] if len(found) == 1 else None
