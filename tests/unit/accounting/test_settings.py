# SPDX-License-Identifier: Apache-2.0
"""Names of clusters are those of Slurm, in lower case."""

from __future__ import annotations

import pytest

from slurmscope.accounting.settings import parse_clusters


def test_clusters_are_read_once_each_in_lower_case() -> None:
    assert ("alpha", "my-lab", "a.b") == parse_clusters(["Alpha", "my-lab", "alpha", "a.b"])
    assert ("all",) == parse_clusters("ALL")


@pytest.mark.parametrize("given", [["all", "alpha"], ["a b"], ["a;b"], ["-a"], ["x" * 65]])
def test_odd_clusters_are_refused(given: list[str]) -> None:
    with pytest.raises(ValueError, match=r"cannot be combined|is not a valid name"):
        parse_clusters(given)
