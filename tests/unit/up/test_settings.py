# SPDX-License-Identifier: Apache-2.0
"""Check how addresses of node agents are read."""

from pathlib import Path

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.up.settings import UpSettings, parse_target, parse_targets


@pytest.mark.parametrize(
    ("text", "address", "nodes"),
    [
        ("http://n1:9798/metrics", "http://n1:9798/metrics", ["n1"]),
        ("http://n1", "http://n1:9798/metrics", ["n1"]),
        ("https://n1.example.org/agent", "https://n1.example.org:9798/agent", ["n1.example.org", "n1"]),
        ("n7=http://10.0.0.7:9100/metrics", "n7=http://10.0.0.7:9100/metrics", ["n7"]),
        ("n[1-2]=unix:/run/agent", "n[1-2]=unix:/run/agent", ["n1", "n2"]),
    ],
)
def test_the_node_is_named_by_its_host(text: str, address: str, nodes: list[str]) -> None:
    target = parse_target(text)
    assert (address, nodes) == (str(target), list(target.nodes))


def test_blanks_separate_the_names_of_nodes_as_in_slurm() -> None:
    assert ("a", "b") == parse_target("a b=http://n1").nodes


@pytest.mark.parametrize("url", ["http://10.0.0.7", "http://[::1]:80", "http://localhost:1", "unix:/run/agent"])
def test_address_without_a_name_needs_one(url: str) -> None:
    with pytest.raises(ValueError, match="write NODE="):
        parse_target(url)


@pytest.mark.parametrize(
    "text",
    [
        "n1",
        "ftp://n1",
        "http://user:secret@n1/",
        "=http://n1",
        "n1=",
        "n[1-2=http://n1",
        "../a=http://n1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_target(text)
    assert "secret" not in str(refused.value)


def test_several_targets_may_be_given() -> None:
    assert ["a", "b"] == [target.nodes[0] for target in parse_targets("http://a,http://b")]
    assert ["a", "b"] == [target.nodes[0] for target in parse_targets(["http://a", "http://b"])]


@pytest.mark.parametrize(
    "url", ["n1=http://10.0.0.7", "http://n1", "n1=http://127.0.0.1.example.org", "n1=http://0.0.0.0"]
)
def test_token_is_not_sent_in_clear_text_unless_allowed(url: str) -> None:
    target = parse_target(url)
    with pytest.raises(ConfigError, match="in clear text"):
        UpSettings(targets=(target,), bearer_token_file=Path("/token")).token_path(target)
    allowed = UpSettings(targets=(target,), bearer_token_file=Path("/token"), bearer_token_over_http=True)
    assert Path("/token") == allowed.token_path(target)
    assert None is UpSettings(targets=(target,)).token_path(target)


@pytest.mark.parametrize(
    "url", ["https://n1", "n1=http://127.0.0.1", "n1=http://[::1]", "n1=http://localhost", "n1=unix:/a"]
)
def test_each_node_may_have_its_own_token(url: str) -> None:
    target = parse_target(url)
    settings = UpSettings(targets=(target,), bearer_token_file=Path("/tokens/{node}.token"))
    assert Path("/tokens/n1.token") == settings.token_path(target)
