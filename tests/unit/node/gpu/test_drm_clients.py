# SPDX-License-Identifier: Apache-2.0
"""Clients of GPUs are read from the kernel's text, whatever users make of their processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.gpu.drm_clients import (
    MOST_CLIENTS,
    MOST_DESCRIPTORS,
    MOST_OF_A_JOB,
    ReadingOrder,
    choose_processes,
    parse_fdinfo,
    read_clients,
    read_kfd,
)
from slurmscope.node.kernel_files import HangGuard
from tests.fakes.kernel_gpus import GIB, MIB, KernelGpus
from tests.leftovers import nothing_left

# As in Documentation/gpu/amdgpu/driver-core and the kernel's examples of i915 and xe.
AMDGPU = b"""pos:\t0
flags:\t02100002
drm-driver:\tamdgpu
drm-client-id:\t24
drm-pdev:\t0000:c1:00.0
pasid:\t32771
drm-total-vram:\t3 MiB
drm-shared-vram:\t0
drm-resident-vram:\t2048 KiB
drm-memory-vram:\t2048 KiB
drm-memory-gtt: \t4096 KiB
drm-engine-gfx:\t1500000000 ns
drm-engine-capacity-enc:\t2
drm-engine-enc:\t7 ns
"""
I915 = b"""drm-driver:\ti915
drm-pdev:\t0000:c1:00.0
drm-client-id:\t7
drm-engine-render:\t9288864723 ns
drm-engine-capacity-video:\t2
drm-engine-video:\t0 ns
drm-resident-system0:\t12 MiB
drm-resident-local0:\t64 MiB
"""
XE = b"""drm-driver:\txe
drm-client-id:\t42
drm-pdev:\t0000:03:00.0
drm-resident-vram0:\t1024 KiB
drm-resident-vram1:\t1024 KiB
drm-cycles-ccs:\t600
drm-total-cycles-ccs:\t1000
drm-engine-capacity-ccs:\t4
drm-cycles-rcs:\t5
"""


def test_text_of_each_driver_is_parsed() -> None:
    amdgpu, i915, xe = parse_fdinfo(AMDGPU), parse_fdinfo(I915), parse_fdinfo(XE)

    assert amdgpu
    assert (("0000:c1:00.0", 24), 2 * MIB) == (amdgpu.key, amdgpu.memory_bytes)
    assert ({"gfx": 1.5, "enc": 7e-9}, {"enc": 2}) == (amdgpu.engines, amdgpu.capacity)
    assert i915
    assert (64 * MIB, 9.288864723) == (i915.memory_bytes, i915.engines["render"])
    assert xe
    # An engine without its total of cycles has no share of time.
    assert (2 * MIB, {"ccs": (600, 1000)}, {"ccs": 4}) == (xe.memory_bytes, xe.cycles, xe.capacity)


@pytest.mark.parametrize(
    "text",
    [
        b"pos:\t0\nflags:\t02\n",
        b"drm-driver:\tvgem\ndrm-client-id:\t3\n",
        b"drm-driver:\tamdgpu\ndrm-pdev:\t0000:c1:00.0\n",
        b"drm-pdev:\t../../etc\ndrm-client-id:\t3\n",
        b"drm-pdev:\t0000:c1:00.0\ndrm-client-id:\tx\n",
    ],
)
def test_text_that_names_no_gpu_or_client_is_none(text: bytes) -> None:
    assert parse_fdinfo(text) is None


@given(st.one_of(st.binary(), st.text("drm-engine:pdvclt0123456789\t\n .nsKiB").map(str.encode)))
def test_any_text_is_parsed_or_refused(text: bytes) -> None:
    found = parse_fdinfo(text)
    assert found is None or found.key[1] >= 0


@given(st.lists(st.sampled_from(sorted(XE.splitlines()) + sorted(AMDGPU.splitlines()))))
def test_numbers_of_shuffled_lines_are_never_negative(lines: list[bytes]) -> None:
    found = parse_fdinfo(b"\n".join(lines))
    if found is not None:
        assert all(seconds >= 0 for seconds in found.engines.values())
        assert all(total > 0 for _, total in found.cycles.values())


@pytest.fixture
def node(tmp_path: Path) -> KernelGpus:
    return KernelGpus(tmp_path)


def test_client_counts_once_for_all_processes_and_descriptors(node: KernelGpus) -> None:
    pdev = node.add_amd(0)
    for pid, number in ((11, 5), (11, 6), (12, 5)):
        node.add_client(pid, pdev, {"engine-gfx": "5000000000 ns"}, number=number, client=7)
    node.add_client(12, pdev, {"engine-gfx": "1000000000 ns"}, number=8, client=8)

    found = read_clients(node.procfs, {11, 12}).clients

    assert {(pdev, 7): (11, 5.0), (pdev, 8): (12, 1.0)} == {
        key: (pid, client.engines["gfx"]) for key, (pid, client) in found.items()
    }


def test_files_that_only_look_like_a_gpu_are_no_clients(node: KernelGpus) -> None:
    pdev = node.add_amd(0)
    forged = f"drm-driver:\tamdgpu\ndrm-pdev:\t{pdev}\ndrm-client-id:\t9\ndrm-engine-gfx:\t9 ns\n"
    # Names that users may choose: a file, a memfd, a dma-buf whose name the kernel puts into its text.
    for number, target in enumerate(("/tmp/dev/dri/renderD128", "/memfd:/dev/dri/renderD128", "/dmabuf:/dev/dri/x")):
        node.add_descriptor(11, number, target, forged)
    # A file that users mounted below /dev/dri in a namespace of their own has no text of the driver.
    node.add_descriptor(11, 9, "/dev/dri/renderD128", "")

    assert {} == read_clients(node.procfs, {11}).clients


def test_huge_folder_of_descriptors_is_read_up_to_a_limit(node: KernelGpus) -> None:
    pdev = node.add_amd(0)
    for number in range(MOST_DESCRIPTORS + 100):
        node.add_client(11, pdev, {}, number=number, client=number)
    node.add_client(12, pdev, {}, client=10**6)

    found = read_clients(node.procfs, {11, 12}).clients

    assert [MOST_CLIENTS, 1] == [sum(pid == wanted for pid, _ in found.values()) for wanted in (11, 12)]


def test_job_with_very_many_processes_leaves_room_for_others() -> None:
    chosen = choose_processes([(1001, range(1, 100_000)), (1001, {200_000}), (1002, ())])
    assert (MOST_OF_A_JOB + 1, True) == (len(chosen[1001]), {1, 200_000} <= chosen[1001])
    assert set() == chosen[1002]


def test_users_take_turns_and_so_do_the_processes_of_each() -> None:
    order = ReadingOrder()
    users: dict[Hashable, set[int]] = {1001: {1, 2, 3, 4}, 1002: {11, 12}}

    readings = [list(itertools.islice(order.sort(users, (4, 12, 99)), 5)) for _ in range(3)]

    # Those that are known to use a GPU, also outside of jobs, then the others from where the last reading ended.
    assert [[4, 12, 99, 1, 11], [12, 99, 4, 11, 2], [99, 4, 12, 3, 11]] == readings


def test_last_process_is_forgotten_with_its_user() -> None:
    order = ReadingOrder()
    assert [1, 2] == list(order.sort({1001: {1, 2}}, ()))
    assert [] == list(order.sort({}, ()))
    assert [1, 2] == list(order.sort({1001: {1, 2}}, ()))


def test_process_that_vanished_or_is_broken_affects_only_itself(node: KernelGpus) -> None:
    pdev = node.add_amd(0)
    node.add_client(12, pdev, {})
    node.add_descriptor(13, 5, "/dev/dri/renderD128")
    (node.procfs / "13/fdinfo/5").unlink()

    assert {(pdev, 7)} == set(read_clients(node.procfs, {10, 12, 13}).clients)


def test_process_that_hangs_affects_only_itself(node: KernelGpus) -> None:
    pdev = node.add_amd(0)
    for pid in (11, 12):
        node.add_client(pid, pdev, {}, number=5, client=pid)
    pipe = node.procfs / "11/fdinfo/5"
    pipe.unlink()
    os.mkfifo(pipe)
    guard = HangGuard(node.procfs, patience_seconds=0.3)
    with nothing_left():
        found = [set(read_clients(node.procfs, {11, 12}, guard=guard).clients) for _ in range(2)]
        pipe.write_bytes(b"")
        guard.close()

    assert [{(pdev, 12)}] * 2 == found


def test_processes_that_take_long_are_read_in_order_until_the_time_is_over(node: KernelGpus) -> None:
    pdev = node.add_amd(0)
    for pid in range(11, 16):
        node.add_client(pid, pdev, {}, client=pid)
    clock = itertools.count(0.0, 0.4)
    found = read_clients(node.procfs, (14, 11, 12, 13, 15), seconds=1.0, clock=lambda: next(clock)).clients

    assert [14, 11] == [number for _, number in found]


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes an ordinary user here")
def test_processes_of_other_users_are_denied_and_the_own_ones_read(node: KernelGpus, tmp_path: Path) -> None:
    pdev = node.add_amd(0)
    node.add_client(11, pdev, {}, client=1)
    node.add_client(12, pdev, {}, client=2)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    (node.procfs / "11/fd").chmod(0o700)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            found = read_clients(node.procfs, {11, 12})
            code = 0 if found.is_denied and set(found.clients) == {(pdev, 2)} else 2
        finally:
            os._exit(code)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_rocm_processes_are_found_with_their_memory(node: KernelGpus) -> None:
    node.add_amd(0)
    node.add_amd(1)
    # A runtime opens all GPUs; of one that it does not use it holds nothing.
    node.add_kfd_process(11, gpu0=3 * GIB, gpu1=0)
    (node.sysfs / "class/kfd/kfd/proc/11/queues").mkdir()
    (node.sysfs / "class/kfd/kfd/proc/12").mkdir()  # just ended

    assert {128: {11: 3 * GIB}, 129: {}} == read_kfd(node.sysfs)


def test_node_without_kfd_has_none(tmp_path: Path) -> None:
    assert {} == read_kfd(tmp_path)
