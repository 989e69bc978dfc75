# SPDX-License-Identifier: Apache-2.0
"""Check the parsers of the Prometheus settings."""

from __future__ import annotations

import pytest

from slurmscope.core.settings import Section
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.prometheus.settings import PrometheusSettings, parse_label, parse_matchers, parse_user


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://prom:9090", ServerAddress(host="prom", port=9090)),
        ("http://prom", ServerAddress(host="prom", port=80)),
        ("https://prom/of/all/", ServerAddress(host="prom", port=443, is_tls=True, prefix="/of/all")),
        ("unix:/run/prom.sock", ServerAddress(socket_path="/run/prom.sock")),
    ],
)
def test_port_follows_from_the_scheme(text: str, expected: ServerAddress) -> None:
    assert expected == parse_address(text)


@pytest.mark.parametrize("text", ["", "prom:9090", "ftp://prom", "http://user:secret@prom", 7])
def test_invalid_address_is_rejected(text: object) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        parse_address(text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("cluster=a", (("cluster", "a"),)),
        ('cluster="a b",site=x', (("cluster", "a b"), ("site", "x"))),
        (["cluster=", "a=b=c"], (("cluster", ""), ("a", "b=c"))),
        ([], ()),
    ],
)
def test_matchers_are_labels_and_values(given: object, expected: object) -> None:
    assert expected == parse_matchers(given)


@pytest.mark.parametrize("given", [7, ["cluster"], ['a="b'], ['a="b"c'], ["a-b=c"], ["=c"], [7], ["a=b\n"], "a=~b\x00"])
def test_invalid_matcher_is_rejected(given: object) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_matchers(given)


def test_cluster_label_is_the_name_of_a_label() -> None:
    assert ("cluster", "") == (parse_label(" cluster "), parse_label(""))
    for wrong in ("a-b", "1a", 'cluster="x"', "a\n b", 7):
        with pytest.raises(ValueError, match="is not"):
            parse_label(wrong)


def test_user_with_a_colon_is_rejected() -> None:
    assert "ada" == parse_user("ada")
    for wrong in ("a:b", "a" * 257, "a\n"):
        with pytest.raises(ValueError, match="is not"):
            parse_user(wrong)


def test_every_setting_has_a_flag_of_its_own() -> None:
    flags = [declared.flag for declared in Section(name="prometheus", type=PrometheusSettings).settings()]

    assert "prometheus.url" == flags[0]
    assert len(set(flags)) == len(flags)
