# SPDX-License-Identifier: Apache-2.0
"""Give a driver that answers as a test wants, and a reader that asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from slurmscope.node.gpu.nvml import CHILD, NvmlProcess, NvmlReader
from tests.fakes.nvml.library import FakeNvml, build_library

Start = Callable[..., NvmlReader]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stand-in for NVIDIA's library once."""
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library: Path, tmp_path: Path) -> FakeNvml:
    """Give a driver without GPUs."""
    fake = FakeNvml(library=library, folder=tmp_path)
    fake.say()
    return fake


@pytest.fixture
def start(driver: FakeNvml, tmp_path: Path) -> Iterator[Start]:
    """Give a function that makes readers of this driver; their children are ended afterwards."""
    readers: list[NvmlReader] = []

    def make(
        *, argv: Sequence[str] = CHILD, environment: Mapping[str, str] | None = None, **changes: object
    ) -> NvmlReader:
        arguments: dict[str, object] = {
            "launch": lambda: NvmlProcess(driver.environment if environment is None else environment, argv),
            "driver_signs": (tmp_path,),
            **changes,
        }
        readers.append(NvmlReader(**arguments))  # type: ignore[arg-type]
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()
