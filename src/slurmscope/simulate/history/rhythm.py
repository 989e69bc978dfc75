# SPDX-License-Identifier: Apache-2.0
"""Describe the rhythm of a program: start-up, then iterations that each end with a checkpoint, with some noise.

The load is constant within a tenth of an iteration. Its sum up to any moment is a closed formula, because the noise
repeats after a hundred iterations: any time can be evaluated at once, and always gives the same number.
"""

from __future__ import annotations

import math
from itertools import accumulate
from random import Random

STEPS = 10
"""Steps of an iteration; the last one is the checkpoint."""
CHECKPOINT_LOAD = 0.7
STARTUP_LOAD = 0.5

_CYCLE = 100 * STEPS
_random = Random("rhythm of simulated programs")
NOISE = tuple(_random.random() for _ in range(_CYCLE))
_WEIGHTS = tuple(CHECKPOINT_LOAD if step % STEPS == STEPS - 1 else 1.0 for step in range(_CYCLE))
_WEIGHT_SUMS = (0.0, *accumulate(_WEIGHTS))
_NOISE_SUMS = (0.0, *accumulate(weight * noise for weight, noise in zip(_WEIGHTS, NOISE, strict=True)))


def load_in(step: int, *, dip_ratio: float, seed: int) -> float:
    """Return the load of a step since the start, from 0 to 1; noise lowers it by up to ``dip_ratio``."""
    place = (step + STEPS * seed) % _CYCLE
    load = _WEIGHTS[place] * (1 - dip_ratio * NOISE[place])
    return STARTUP_LOAD * load if step == 0 else load


def sum_before(step: int, *, dip_ratio: float, seed: int) -> float:
    """Return the sum of the loads of all steps before this one."""
    first = STEPS * seed
    total = _sum_to(first + step, dip_ratio) - _sum_to(first, dip_ratio)
    return total - load_in(0, dip_ratio=dip_ratio, seed=seed) * (1 / STARTUP_LOAD - 1) if step > 0 else 0.0


def checkpoints(at: float, period_seconds: float) -> float:
    """Return how many checkpoints were written until this time; the last one may be unfinished."""
    whole, part = divmod(at / period_seconds, 1.0)
    return whole + max(0.0, (part - (1 - 1 / STEPS)) * STEPS)


def noise_at(at: float, step_seconds: float) -> float:
    """Return noise from 0 to 1 that changes once per step."""
    return NOISE[math.floor(at / step_seconds) % _CYCLE]


def _sum_to(step: int, dip_ratio: float) -> float:
    cycles, place = divmod(step, _CYCLE)
    weights = cycles * _WEIGHT_SUMS[-1] + _WEIGHT_SUMS[place]
    return weights - dip_ratio * (cycles * _NOISE_SUMS[-1] + _NOISE_SUMS[place])
