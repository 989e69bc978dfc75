# SPDX-License-Identifier: Apache-2.0
"""Threads of a program are counted over time, however irregular the samples are."""

from __future__ import annotations

from collections import Counter

from slurmscope.run.process_tree import PROGRAMS, ThreadMeans


def test_moment_with_many_processes_weighs_little() -> None:
    """A wrapper script that starts five shells for a tenth of a second has no five threads."""
    means = ThreadMeans()
    for seconds, threads in ((0.0, {"bash": 5}), (0.1, {"bash": 5}), (0.2, {"python3": 8}), (10.0, {"python3": 8})):
        means.add(Counter(threads), seconds)

    assert {"python3": 8} == means.means()


def test_program_that_ends_between_two_samples_counts_half() -> None:
    means = ThreadMeans()
    for seconds, threads in ((0.0, 64), (10.0, 64), (20.0, 0)):
        means.add(Counter(solver=threads), seconds)

    assert {"solver": 48} == means.means()


def test_nothing_is_known_after_one_sample_or_with_a_clock_that_was_set_back() -> None:
    means = ThreadMeans()
    means.add(Counter(solver=4), 10.0)
    means.add(Counter(solver=4), 5.0)

    assert {} == means.means()


def test_program_that_starts_after_many_others_is_still_counted() -> None:
    means = ThreadMeans()
    for number in range(3 * PROGRAMS):
        means.add(Counter({f"helper{number}": 1}), number / 10)
    means.add(Counter(solver=16), 6.0)
    means.add(Counter(solver=16), 1000.0)

    assert {"solver": 16} == means.means()
