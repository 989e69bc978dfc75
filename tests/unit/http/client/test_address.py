# SPDX-License-Identifier: Apache-2.0
"""Check that the address of a server is parsed, or rejected without being repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.http.client.address import ServerAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("http://ctl", ServerAddress(host="ctl", port=80), "http://ctl:80"),
        ("https://ctl", ServerAddress(host="ctl", port=443, is_tls=True), "https://ctl:443"),
        ("http://ctl:80/", ServerAddress(host="ctl", port=80), "http://ctl:80"),
        (
            "https://ctl:443/api/",
            ServerAddress(host="ctl", port=443, is_tls=True, prefix="/api"),
            "https://ctl:443/api",
        ),
        ("http://[::1]:6821", ServerAddress(host="::1", port=6821), "http://[::1]:6821"),
        ("unix:/run/s.sock", ServerAddress(socket_path="/run/s.sock"), "unix:/run/s.sock"),
        ("unix:///run/s.sock", ServerAddress(socket_path="/run/s.sock"), "unix:/run/s.sock"),
    ],
)
def test_address_is_parsed(text: str, address: ServerAddress, shown: str) -> None:
    assert address == parse_address(text)
    assert shown == str(parse_address(text))


@pytest.mark.parametrize("text", ["http://ctl", "https://ctl"])
def test_default_port_replaces_that_of_the_scheme(text: str) -> None:
    assert 6820 == parse_address(text, default_port=6820).port
    assert 7 == parse_address(f"{text}:7", default_port=6820).port


def test_host_header_of_a_unix_socket_is_localhost() -> None:
    assert "localhost" == parse_address("unix:/run/s.sock").host_and_port


@pytest.mark.parametrize(
    "given_",
    [
        "",
        "ctl:6820",
        "ftp://ctl",
        "http://",
        "http://user:hunter2@ctl",
        "http://hunter2@ctl",
        "http://ctl:0",
        "http://ctl:99999",
        "http://ctl:x",
        "http://ctl/?hunter2",
        "http://ctl/#hunter2",
        "http://c tl/",
        "http://[::1",
        "http://ctl/\r\nX-Evil: hunter2",
        "unix:",
        "unix:/",
        "unix:/" + "x" * 107,
        7,
        None,
    ],
)
def test_invalid_address_is_rejected_and_not_repeated(given_: object) -> None:
    with pytest.raises(ValueError, match="not of the form") as caught:
        parse_address(given_)

    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=30) | st.text(max_size=20).map(lambda text: f"http://{text}"))
def test_any_text_is_an_address_or_rejected(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert address == parse_address(str(address))
