# SPDX-License-Identifier: Apache-2.0
"""Check basic authentication and the memory of its results."""

from __future__ import annotations

import base64
import threading
from dataclasses import replace

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import ConfigError
from slurmscope.http.server.auth import CACHE_LIMIT, BasicAuth, cache_key, parse_credentials
from slurmscope.http.server.request import HttpRequest


def hashed(password: bytes) -> str:
    return bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()


class Checks:
    """Count the passwords that are really checked, and by how many at a time."""

    def __init__(self) -> None:
        """Start with none."""
        self.hashes: list[bytes] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def __call__(self, password: bytes, digest: bytes) -> bool:
        """Check like bcrypt, and take note."""
        with self._lock:
            self.hashes.append(digest)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return bcrypt.checkpw(password, digest)
        finally:
            with self._lock:
                self._at_once -= 1


def request(user: bytes, password: bytes) -> HttpRequest:
    encoded = base64.b64encode(user + b":" + password).decode()
    return HttpRequest(method="GET", path="/", headers={"authorization": f"Basic {encoded}"})


def is_let_in(auth: BasicAuth, user: bytes, password: bytes) -> bool:
    refusal = auth.refuse(request(user, password))
    assert refusal is None or refusal.status == 401
    return refusal is None


def test_right_password_and_only_that_is_let_in() -> None:
    auth = BasicAuth({"alice": hashed(b"pass:word"), "bob": hashed(b"other")})
    assert is_let_in(auth, b"alice", b"pass:word")
    assert not is_let_in(auth, b"alice", b"other")
    assert not is_let_in(auth, b"bob", b"pass:word")
    assert not is_let_in(auth, b"ALICE", b"pass:word")
    assert not is_let_in(auth, b"alice", b"")
    assert not is_let_in(auth, b"", b"")
    assert is_let_in(auth, b"bob", b"other")


def test_refusal_says_how_to_come_in() -> None:
    refusal = BasicAuth({"a": hashed(b"b")}).refuse(HttpRequest(method="GET", path="/", headers={}))
    assert refusal is not None
    assert refusal.status == 401
    assert dict(refusal.headers)["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!!!", "Basic YQ==", "Bearer YTpi", "Basic YTpi YTpi", "Basic ü", "basicYTpi"]
)
def test_malformed_credentials_are_none(header: str) -> None:
    assert parse_credentials(header) is None


def test_scheme_has_no_case_and_password_may_hold_colons() -> None:
    assert parse_credentials("bAsIc " + base64.b64encode(b"a:b:c").decode()) == (b"a", b"b:c")


def test_both_results_are_remembered() -> None:
    checks = Checks()
    auth = BasicAuth({"a": hashed(b"good")}, check=checks)
    for _ in range(3):
        assert is_let_in(auth, b"a", b"good")
        assert not is_let_in(auth, b"a", b"bad")
        assert not is_let_in(auth, b"nobody", b"good")
    assert len(checks.hashes) == 3


def test_unknown_user_costs_as_much_as_a_known_one() -> None:
    checks = Checks()
    digests = {"a": hashed(b"x"), "b": bcrypt.hashpw(b"y", bcrypt.gensalt(5)).decode()}
    auth = BasicAuth(digests, check=checks)
    assert not is_let_in(auth, b"nobody", b"x")
    assert [b"$2b$05$"] == [digest[:7] for digest in checks.hashes]
    assert checks.hashes[0].decode() not in digests.values()


def test_hash_never_passes_for_a_password() -> None:
    # CVE-2022-46146: with plain joining, the remembered failure of (user, hash + password) was found
    # again as the success of another split of the same text.
    digest = hashed(b"secret")
    auth = BasicAuth({"alice": digest})
    assert is_let_in(auth, b"alice", b"secret")
    assert not is_let_in(auth, b"alice", digest.encode())
    assert not is_let_in(auth, b"alice" + digest.encode(), b"secret")
    assert not is_let_in(auth, b"alice" + digest.encode()[:40], digest.encode()[40:] + b"secret")
    decoy = b"$2b$04$" + b"." * 53
    assert not is_let_in(auth, b"alice", decoy)
    assert not is_let_in(auth, b"nobody", decoy)
    assert not is_let_in(auth, b"ali", b"ce" + digest.encode()[:60])


@given(st.lists(st.binary(max_size=4), min_size=3, max_size=3), st.lists(st.binary(max_size=4), min_size=3, max_size=3))
def test_different_fields_have_different_keys(first: list[bytes], second: list[bytes]) -> None:
    assert (first == second) == (cache_key(b"k", *first) == cache_key(b"k", *second))


def test_key_depends_on_the_secret_of_the_process() -> None:
    assert cache_key(b"one", b"a", b"b", b"c") != cache_key(b"two", b"a", b"b", b"c")


def test_flood_of_guesses_does_not_push_out_the_scraper() -> None:
    checks = Checks()
    auth = BasicAuth({"a": hashed(b"good")}, check=checks)
    assert is_let_in(auth, b"a", b"good")
    for number in range(CACHE_LIMIT + 20):
        assert not is_let_in(auth, b"a", b"bad%d" % number)
    before = len(checks.hashes)
    assert is_let_in(auth, b"a", b"good")
    assert not is_let_in(auth, b"a", b"bad%d" % (CACHE_LIMIT + 19))
    assert before == len(checks.hashes)
    assert not is_let_in(auth, b"a", b"bad0")
    assert before + 1 == len(checks.hashes)


def test_password_that_bcrypt_cannot_take_is_wrong() -> None:
    long = b"x" * 72
    auth = BasicAuth({"a": hashed(long)})
    assert is_let_in(auth, b"a", long)
    assert not is_let_in(auth, b"a", long + b"x")
    assert not is_let_in(auth, b"a", b"x\0y")


def test_one_password_is_checked_at_a_time() -> None:
    checks = Checks()
    auth = BasicAuth({"a": bcrypt.hashpw(b"good", bcrypt.gensalt(7)).decode()}, check=checks)
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(is_let_in(auth, b"a", (b"good", b"bad%d" % n)[n % 2])))
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (10, 10) == (results.count(True), results.count(False))
    assert checks.most_at_once == 1
    assert len(checks.hashes) == 11


def test_client_that_cannot_be_checked_in_time_gets_503() -> None:
    is_checking, go_on = threading.Event(), threading.Event()

    def check(password: bytes, digest: bytes) -> bool:
        is_checking.set()
        return go_on.wait(30)

    auth = BasicAuth({"a": hashed(b"good")}, check=check, wait_seconds=0.05)
    first = threading.Thread(target=auth.refuse, args=(request(b"a", b"slow"),))
    first.start()
    assert is_checking.wait(30)
    refusal = auth.refuse(request(b"a", b"other"))
    assert refusal is not None
    assert refusal.status == 503
    go_on.set()
    first.join(30)
    assert is_let_in(auth, b"a", b"slow")


def test_password_that_makes_bcrypt_fail_is_wrong() -> None:
    def check(password: bytes, digest: bytes) -> bool:
        raise ValueError("too odd")

    assert not is_let_in(BasicAuth({"a": hashed(b"good")}, check=check), b"a", b"good")


def test_hash_that_bcrypt_cannot_use_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="'a' is not a bcrypt hash"):
        BasicAuth({"a": "$2b$04$" + "a" * 53})


def guess(auth: BasicAuth, number: int, *, user: bytes = b"a", group: str = "10.0.0.1") -> int:
    refusal = auth.refuse(replace(request(user, b"guess%d" % number), group=group))
    return 200 if refusal is None else refusal.status


def test_guesses_of_one_address_use_a_small_share_of_a_core() -> None:
    now, checked = [0.0], list[bytes]()

    def check(password: bytes, digest: bytes) -> bool:
        checked.append(password)
        return password == b"good"

    costliest = hashed(b"good").replace("$04$", "$18$")  # about 9 s for each check
    auth = BasicAuth({"a": costliest, "b": hashed(b"good")}, check=check, clock=lambda: now[0])
    statuses = [guess(auth, number) for number in range(20)]
    assert [401] * 5 + [429] * 15 == statuses
    assert 5 == len(checked)

    # Others are checked: another address, another user, and the same guess is answered at once.
    assert 401 == guess(auth, 30, group="10.0.0.2")
    assert 401 == guess(auth, 30, user=b"b")
    assert 401 == guess(auth, 0)
    # One guess in 400 seconds, of which a check takes about a fortieth.
    now[0] += 401
    assert [401, 429] == [guess(auth, 40), guess(auth, 41)]


def test_password_that_was_right_before_is_not_limited() -> None:
    auth = BasicAuth({"a": hashed(b"good").replace("$04$", "$18$")}, check=lambda password, _: password == b"good")
    assert is_let_in(auth, b"a", b"good")
    for number in range(10):
        guess(auth, number, group="")
    assert is_let_in(auth, b"a", b"good")


def test_unknown_users_share_one_limit() -> None:
    auth = BasicAuth({"a": hashed(b"good").replace("$04$", "$18$")}, check=lambda *_: False)
    assert 429 == [guess(auth, number, user=b"nobody%d" % number) for number in range(6)][-1]
