# SPDX-License-Identifier: Apache-2.0
"""Settings that give access to strangers or make sign-in impossible are rejected before the portal starts."""

from __future__ import annotations

import pytest

from slurmscope.core.config import load
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Parse, Section
from slurmscope.portal.settings import (
    ListenAddress,
    PortalSettings,
    check_settings,
    parse_base_path,
    parse_domains,
    parse_header_name,
    parse_link,
    parse_listen_address,
    parse_user_name,
    parse_user_names,
)

SECTION = Section(name="portal", type=PortalSettings)


def load_settings(**given: object) -> PortalSettings:
    flags = {f"portal.{name.replace('_', '-')}": value for name, value in given.items()}
    return load([SECTION], flags=flags, environment={}).of(PortalSettings)


def test_defaults_are_safe_to_start() -> None:
    settings = load_settings()

    check_settings(settings)
    assert PortalSettings() == settings
    assert "127.0.0.1:8080" == str(settings.listen_address)


@pytest.mark.parametrize("address", ["127.0.0.1:80", "localhost:0", "[::1]:8080", "127.9.9.9:1", "unix:/run/portal"])
def test_local_mode_starts_on_this_machine_only(address: str) -> None:
    settings = load_settings(listen_address=address)

    check_settings(settings)
    assert address == str(settings.listen_address)


@pytest.mark.parametrize("address", [":8080", "0.0.0.0:8080", "[::]:8080", "10.0.0.1:80", "portal.example.org:80"])
def test_local_mode_does_not_start_on_a_public_address(address: str) -> None:
    with pytest.raises(ConfigError, match=r"portal\.mode") as rejected:
        check_settings(load_settings(listen_address=address))

    assert "\n" not in str(rejected.value)


@pytest.mark.parametrize(
    ("address", "peers"),
    [(":8080", "10.0.0.5"), ("unix:/run/portal", "unix"), ("[2001:db8::1]:80", "unix,2001:db8::/64")],
)
def test_proxy_mode_starts_on_an_address_of_its_proxies(address: str, peers: str) -> None:
    check_settings(load_settings(mode="proxy", listen_address=address, proxy_peers=peers))


@pytest.mark.parametrize(("address", "peers"), [(":8080", "unix"), ("unix:/run/portal", "10.0.0.5")])
def test_proxy_mode_does_not_start_if_sign_in_is_impossible(address: str, peers: str) -> None:
    with pytest.raises(ConfigError, match="sign-in is impossible"):
        check_settings(load_settings(mode="proxy", listen_address=address, proxy_peers=peers))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listen_address", "nowhere"), ("listen_address", ":70000"), ("listen_address", "unix:portal"),
        ("listen_address", "unix:/" + "a" * 107), ("listen_address", "::1:80"), ("mode", "open"),
        ("proxy_header", "X_Remote_User"), ("proxy_header", "Host"), ("proxy_header", "authorization"),
        ("proxy_header", ""), ("proxy_header", "X-User:"), ("proxy_peers", "0.0.0.0/0"), ("proxy_peers", "::/0"),
        ("proxy_peers", "::ffff:0.0.0.0/96"), ("proxy_peers", "10.0.0.1/8"), ("proxy_peers", "proxy.example.org"),
        ("base_path", "portal"), ("base_path", "/a/../b"), ("base_path", "//evil.example"), ("base_path", "/a b"),
        ("support", "a b"), ("admins", "ada,b c"), ("local_user", "../x"), ("strip_domain", "@x.org"),
        ("help_link", "javascript:alert(1)"), ("help_link", "//evil.example"), ("title", "a\nb"),
    ],
)  # fmt: skip
def test_error_of_an_invalid_value_names_its_flag(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as rejected:
        load_settings(**{name: value})

    assert f"--portal.{name.replace('_', '-')}" in str(rejected.value)


@pytest.mark.parametrize(
    ("parse", "given", "expected"),
    [
        (parse_listen_address, "[::1]:80", ListenAddress(host="::1", port=80)),
        (parse_listen_address, ListenAddress(host="::1", port=80), ListenAddress(host="::1", port=80)),
        (parse_listen_address, "unix:/run/a b", ListenAddress(socket_path="/run/a b")),
        (parse_base_path, "/", ""),
        (parse_base_path, "/pun/sys/slurmscope/", "/pun/sys/slurmscope"),
        (parse_header_name, "REMOTE-USER", "REMOTE-USER"),
        (parse_user_names, "ada,bob", ("ada", "bob")),
        (parse_user_name, "", ""),
        (parse_user_name, "ada", "ada"),
        (parse_domains, ["EXAMPLE.ORG"], ("EXAMPLE.ORG",)),
        (parse_link, "mailto:help@example.org", "mailto:help@example.org"),
        (parse_link, "", ""),
    ],
)
def test_valid_value_is_parsed(parse: Parse, given: object, expected: object) -> None:
    assert expected == parse(given)
