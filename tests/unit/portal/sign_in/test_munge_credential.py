# SPDX-License-Identifier: Apache-2.0
"""A munge credential identifies a user for the API of one portal, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from slurmscope.core.errors import ServerRefused
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.viewer import ViewerRole
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.errors import NotSignedIn, Refused, SignInError, SignInUnavailable, TooMany
from slurmscope.portal.sign_in.identity import Identifier
from slurmscope.portal.sign_in.munge import MungeCredentials
from slurmscope.slurm.munge import MungeCredential, make_payload
from tests.fakes.sign_in import PROXY_ADDRESS, PROXY_SETTINGS, STRANGER, make_identifier, make_scope

PORTAL = parse_address("https://jobs.example.org")
PAYLOAD = make_payload(PORTAL).encode()
NAMES = {1001: "ada", 1002: "sue", 1003: "bad name"}


@dataclass
class FakeMunged:
    """Accept each credential once; the credential is ``UID/PAYLOAD``."""

    used: set[str] = field(default_factory=set)
    is_down: bool = False

    def decode(self, text: str) -> MungeCredential | None:
        if self.is_down:
            raise ServerRefused("munged is down")
        if text in self.used or "/" not in text:
            return None
        self.used.add(text)
        uid, _, payload = text.partition("/")
        return MungeCredential(int(uid), payload.encode())


def _credentials(munged: FakeMunged, wait: Callable[[str], float] = lambda _: 0.0) -> MungeCredentials:
    return MungeCredentials(PORTAL, decode=munged.decode, find_name=NAMES.get, wait_seconds=wait)


def _identifier(munged: FakeMunged | None = None, **changed: object) -> Identifier:
    return make_identifier(PROXY_SETTINGS, munge=_credentials(munged or FakeMunged()), **changed)  # type: ignore[arg-type]


def _scope(
    uid: int = 1001, payload: bytes = PAYLOAD, path: str = "/api/v2/jobs", method: str = "GET"
) -> dict[str, object]:
    header = ("authorization", f"Munge {uid}/{payload.decode()}")
    return make_scope(header, client=STRANGER, path=path, method=method)


def test_user_of_a_credential_is_a_viewer_with_the_role_and_accounts_of_the_pages() -> None:
    identifier = _identifier(coordinators=lambda user: frozenset({"physics"} if user == "ada" else ()))

    ada = identifier.identify(_scope())
    assert ("ada", ViewerRole.USER, frozenset({"physics"})) == (ada.name, ada.role, ada.coordinates)
    assert ViewerRole.SUPPORT == identifier.identify(_scope(uid=1002)).role


def test_credential_is_accepted_once() -> None:
    identifier = _identifier()
    identifier.identify(_scope())

    with pytest.raises(NotSignedIn, match="was used before"):
        identifier.identify(_scope())


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (make_payload(parse_address("https://evil.example.org")).encode(), "is for another portal: this one is https"),
        (make_payload(parse_address("http://jobs.example.org")).encode(), "is for another portal"),
        (b"", "is for another portal"),
    ],
)
def test_credential_for_another_service_is_refused(payload: bytes, message: str) -> None:
    with pytest.raises(NotSignedIn, match=message):
        _identifier().identify(_scope(payload=payload))


@pytest.mark.parametrize(
    ("path", "method"), [("/jobs", "GET"), ("/", "GET"), ("/api/v2/jobs", "POST"), ("/users/ada/digest", "POST")]
)
def test_credential_reads_the_api_and_does_nothing_else(path: str, method: str) -> None:
    munged = FakeMunged()

    with pytest.raises(NotSignedIn, match="GET requests to the API only"):
        _identifier(munged).identify(_scope(path=path, method=method))
    assert not munged.used


def test_base_path_of_the_portal_is_not_part_of_the_api_path() -> None:
    scope = {**_scope(path="/portal/api/v2/jobs"), "root_path": "/portal"}

    assert "ada" == _identifier().identify(scope).name


@pytest.mark.parametrize("uid", [1003, 1004])
def test_user_without_a_usable_name_is_refused(uid: int) -> None:
    with pytest.raises(Refused, match=f"does not know user ID {uid}"):
        _identifier().identify(_scope(uid=uid))


def test_many_credentials_of_one_address_have_to_wait_before_a_process_is_started() -> None:
    munged = FakeMunged()
    seen: list[str] = []

    def wait(client: str) -> float:
        seen.append(client)
        return 0.3

    identifier = make_identifier(PROXY_SETTINGS, munge=_credentials(munged, wait))
    with pytest.raises(TooMany) as raised:
        identifier.identify(_scope())

    assert ({"Retry-After": "1"}, 429) == (raised.value.headers, raised.value.status)
    assert ([STRANGER], set()) == (seen, munged.used)


def test_munged_that_does_not_answer_is_no_wrong_credential() -> None:
    with pytest.raises(SignInUnavailable) as raised:
        _identifier(FakeMunged(is_down=True)).identify(_scope())

    assert (503, {"Retry-After": "10"}) == (raised.value.status, raised.value.headers)


def test_portal_without_munge_refuses_credentials_also_in_the_guise_of_a_token() -> None:
    identifier = make_identifier(PROXY_SETTINGS)

    with pytest.raises(NotSignedIn, match="does not accept munge credentials; use a token"):
        identifier.identify(_scope())


def test_user_named_by_the_proxy_comes_first() -> None:
    munged = FakeMunged()
    scope = make_scope(
        ("x-remote-user", "bob"), ("authorization", "Munge 1001/x"), client=PROXY_ADDRESS, path="/api/v2/me"
    )

    assert "bob" == _identifier(munged).identify(scope).name
    assert not munged.used


def test_local_user_with_a_credential_is_known_without_it() -> None:
    scope = make_scope(("host", "localhost"), ("authorization", "Munge 1001/x"), path="/api/v2/me")

    assert "runner" == make_identifier(PortalSettings()).identify(scope).name


def test_two_authorization_headers_are_refused() -> None:
    scope = make_scope(("authorization", "Munge a"), ("authorization", "Munge b"), client=STRANGER, path="/api/v2/me")

    with pytest.raises(SignInError, match="more than once"):
        _identifier().identify(scope)
