# SPDX-License-Identifier: Apache-2.0
"""Load an NVIDIA GPU with PyTorch as the arguments say, and print for each when it was really at work.

::

    python -m bench.gpu_load wait hold:2 duty:0.6:60     memory in GiB; busy 60 % of each second, for a minute
    {"command": "duty:0.6:60", "began": 81.5, "ended": 141.6, "bursts": [[81.5, 82.1], ...]}

Times are those of the monotonic clock. ``wait`` waits for a line, so that a start costs no time later.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

SIZE = 8192
BATCH = 4
AHEAD = 3
"""Batches that are queued while one is at work: the GPU never waits for us."""
COPY_BYTES = 256 << 20
SPIN_CYCLES = 1_000_000_000

Interval = tuple[float, float]


def main(commands: list[str]) -> int:
    """Carry out the commands in their order."""
    import torch  # type: ignore[import-not-found]

    kept: list[object] = []
    for command in commands:
        name, *numbers = command.split(":")
        began = time.monotonic()
        found = _LOADS[name](torch, kept, numbers)
        print(json.dumps({"command": command, "began": began, "ended": time.monotonic(), **found}), flush=True)
    return 0


def _wait(_torch: Any, _kept: list[object], _numbers: list[str]) -> dict[str, object]:
    sys.stdin.readline()
    return {}


def _hold(torch: Any, kept: list[object], numbers: list[str]) -> dict[str, object]:
    kept.append(torch.ones(int(float(numbers[0]) * (1 << 30)), dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    return {}


def _idle(_torch: Any, _kept: list[object], numbers: list[str]) -> dict[str, object]:
    time.sleep(float(numbers[0]))
    return {}


def _burst(torch: Any, work: Callable[[], object], seconds: float) -> Interval:
    """Work without a gap for so long."""
    began, queued = time.monotonic(), deque[Any]()
    while time.monotonic() - began < seconds:
        work()
        queued.append(torch.cuda.Event())
        queued[-1].record()
        if len(queued) > AHEAD:
            queued.popleft().synchronize()
    torch.cuda.synchronize()
    return began, time.monotonic()


def _products(torch: Any, dtype: Any) -> Callable[[], object]:
    first, second = (torch.randn(SIZE, SIZE, device="cuda").to(dtype) for _ in range(2))
    out = torch.empty_like(first)

    def work() -> None:
        for _ in range(BATCH):
            torch.matmul(first, second, out=out)

    _burst(torch, work, 0.3)
    return work


def _duty(torch: Any, _kept: list[object], numbers: list[str]) -> dict[str, object]:
    ratio, seconds = map(float, numbers)
    work = _products(torch, torch.bfloat16)
    bursts, began = [], time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        bursts.append(_burst(torch, work, seconds if ratio >= 1 else ratio - AHEAD * 0.003))
        time.sleep(max(0.0, now + 1 - time.monotonic()))
    return {"bursts": bursts}


def _fp32(torch: Any, _kept: list[object], numbers: list[str]) -> dict[str, object]:
    return {"bursts": [_burst(torch, _products(torch, torch.float32), float(numbers[0]))]}


def _copy(torch: Any, _kept: list[object], numbers: list[str]) -> dict[str, object]:
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    copies = [0]

    def work() -> None:
        target.copy_(source, non_blocking=True)
        copies[0] += 1

    return {"bursts": [_burst(torch, work, float(numbers[0]))], "bytes": copies[0] * COPY_BYTES}


def _spin(torch: Any, _kept: list[object], numbers: list[str]) -> dict[str, object]:
    return {"bursts": [_burst(torch, lambda: torch.cuda._sleep(SPIN_CYCLES), float(numbers[0]))]}


def _train(torch: Any, _kept: list[object], numbers: list[str]) -> dict[str, object]:
    """Train a small transformer: in single precision as PyTorch does by itself, or with one line for bfloat16."""
    precision, seconds = numbers[0], float(numbers[1])
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device="cuda")
    model = torch.nn.TransformerEncoder(layer, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(32, 512, 1024, device="cuda")
    began, steps = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = torch.nn.functional.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        float(loss)  # as every loop that prints its loss does
        steps += 1
    return {"steps": steps}


_LOADS: dict[str, Callable[[Any, list[object], list[str]], dict[str, object]]] = {
    "wait": _wait, "hold": _hold, "idle": _idle, "duty": _duty, "fp32": _fp32, "copy": _copy, "spin": _spin,
    "train": _train,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
