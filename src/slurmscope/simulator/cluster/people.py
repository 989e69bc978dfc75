# SPDX-License-Identifier: Apache-2.0
"""Generate the users, accounts and job names of a simulated cluster."""

from __future__ import annotations

from random import Random

from slurmscope.simulator.cluster.records import User

QOS = ("normal", "high", "low", "long", "scavenger")

_ACCOUNTS = (
    "physics", "chemistry", "biology", "geo-2026", "astro", "materials", "cfd_lab", "linguistics", "mathematics",
    "medicine",
)  # fmt: skip

_GIVEN_NAMES = (
    "alice", "bob", "carol", "dmitri", "esra", "fatima", "george", "hana", "ivan", "jun", "kofi", "lena", "maria",
    "noor", "olga", "pedro", "qing", "rosa", "sven", "tariq", "ulla", "victor", "wanja", "xin", "yusuf", "zoe",
)  # fmt: skip

# Sites with directory services have names like this one; fixed-width columns cut it.
_LONG_NAME = "maximiliane.oberhuber-santos@staff.example.org"

_WORDS = ("train", "relax", "md", "blast", "sweep", "render", "align", "solve", "mesh", "fold", "merge", "bench")
_ENDINGS = ("", "_v2", "-final", ".sh", "_01", "-gpu", "_test", "-long-run")

# Names that break readers: they forge rows and columns, close quotes, colour terminals, are no UTF-8, look like format,
# command, markup or a missing value. A NUL byte is the only one that cannot occur.
HOSTILE_NAMES = (
    "two\nlines",
    "pipe|in|name",
    "1|physics|alice|standard|RUNNING|1|1|cpu=1\n2|physics|alice|standard|RUNNING|1|1|cpu=1",
    'quote"d',
    "it's",
    '"},{"state":"RUNNING"',
    "\x1b[31mred\x1b[0m",
    b"\xff\xfe\xc3 not utf-8".decode("utf-8", "surrogateescape"),
    "x" * 1000,
    "",
    "   ",
    "tab\tand\rreturn",
    "back\\slash\\n",
    "a,b:c;d e",
    "%s%n%j{job}",
    "$(reboot)`id`",
    "'; DROP TABLE jobs; --",
    "<script>alert(1)</script>",
    "näme-✓-数据",
    "\u202egnp.exe",
    "N/A",
    "(null)",
    "--help",
)


def make_accounts(count: int) -> tuple[str, ...]:
    return tuple(_ACCOUNTS[number] if number < len(_ACCOUNTS) else f"acct{number:04}" for number in range(count))


def make_users(random: Random, count: int, accounts: tuple[str, ...]) -> tuple[User, ...]:
    """Return ``count`` users, each with one to three of the accounts; the second has a very long name."""
    users = []
    for number in range(count):
        name = _GIVEN_NAMES[number % len(_GIVEN_NAMES)] + (
            str(number // len(_GIVEN_NAMES)) if number >= len(_GIVEN_NAMES) else ""
        )
        chosen = random.sample(accounts, k=min(len(accounts), random.choice((1, 1, 2, 3))))
        users.append(User(name=_LONG_NAME if number == 1 else name, uid=10_001 + number, accounts=tuple(chosen)))
    return tuple(users)


def pick_user(random: Random, users: tuple[User, ...]) -> User:
    """Pick a user; a few people own most of the jobs, as everywhere."""
    return users[int(len(users) * random.random() ** 3)]


def pick_job_name(random: Random) -> str:
    return random.choice(_WORDS) + random.choice(_ENDINGS)
