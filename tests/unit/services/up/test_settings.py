# SPDX-License-Identifier: Apache-2.0
"""Check how addresses of node agents are read."""

import pytest

from slurmscope.services.up.settings import parse_target, parse_targets


@pytest.mark.parametrize(
    ("text", "address", "node"),
    [
        ("http://n1:9798/metrics", "http://n1:9798/metrics", "n1"),
        ("http://n1", "http://n1:9798/metrics", "n1"),
        ("https://n1.example.org/agent", "https://n1.example.org:9798/agent", "n1.example.org"),
        ("n7=http://10.0.0.7:9100/metrics", "n7=http://10.0.0.7:9100/metrics", "n7"),
        ("http://10.0.0.7", "http://10.0.0.7:9798/metrics", ""),
        ("http://[::1]:80", "http://[::1]:80/metrics", ""),
        ("http://localhost:1", "http://localhost:1/metrics", ""),
    ],
)
def test_the_node_is_named_by_its_host(text: str, address: str, node: str) -> None:
    target = parse_target(text)
    assert (address, node) == (str(target), target.node)


@pytest.mark.parametrize("text", ["n1", "ftp://n1", "http://user:secret@n1/", "a b=http://n1", "=http://n1", "n1="])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_target(text)
    assert "secret" not in str(refused.value)


def test_several_targets_may_be_given() -> None:
    assert ["a", "b"] == [target.node for target in parse_targets("http://a,http://b")]
    assert ["a", "b"] == [target.node for target in parse_targets(["http://a", "http://b"])]
