# SPDX-License-Identifier: Apache-2.0
"""Describe the things a simulated cluster is made of, with the names of its users, accounts and jobs."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from slurmscope.slurm import states

# Jobs in these states hold CPUs of their nodes. A suspended job keeps its memory and GPUs but gives its CPUs back.
CPU_HOLDING_STATES = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"})
ENDED_STATES = states.ENDED_STATES - {states.REVOKED} | {"STAGE_OUT"}

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Describe how large a simulated cluster is; the same shape gives the same cluster.

    ``jobs`` counts rows of ``squeue -r``: each task of an array is a job. ``gpus`` counts devices, four to a node.
    """

    seed: int = 1
    jobs: int = 500
    nodes: int = 64
    users: int = 25
    accounts: int = 8
    partitions: int = 4
    gpus: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Name a user, a number and the accounts that the user may charge, the default first."""

    name: str
    uid: int
    accounts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Group nodes under a name with a time limit (None: no limit)."""

    name: str
    time_limit_seconds: int | None
    node_names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPool:
    """Count devices of one type on a node; an empty type is what sites without ``Type=`` have."""

    type: str
    total: int
    used: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """One node: what it has, what of it is taken, in which state it is.

    ``dialect`` picks one of the ways in which sites spell generic resources. None means that the node did not report.
    """

    name: str
    cpus: int
    memory_bytes: int
    partitions: tuple[str, ...]
    base: str = "idle"
    flags: tuple[str, ...] = ()
    cpus_allocated: int = 0
    memory_allocated_bytes: int = 0
    memory_free_bytes: int | None = None
    cpu_load: float | None = None
    gpus: tuple[GpuPool, ...] = ()
    dialect: int = 0
    features: str | None = None
    weight: int = 1
    reason: str | None = None
    reason_user: User | None = None
    reason_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """One record of squeue; a pending array is one record that stands for all its waiting tasks.

    Amounts are per node; totals are properties. Times are seconds since 1970.
    """

    id: int
    name: str
    user: User
    account: str | None
    partitions: tuple[str, ...]
    qos: str
    state: str
    submit_time: int
    reason: str = "None"
    array_id: int | None = None
    tasks: tuple[int, ...] = ()
    task_limit: int | None = None
    het_id: int | None = None
    het_offset: int | None = None
    nodes: int = 1
    cpus_per_node: int = 1
    memory_per_node_bytes: int = 0
    gpus_per_node: int = 0
    gpu_type: str = ""
    dialect: int = 0
    node_names: tuple[str, ...] = ()
    start_time: int | None = None
    end_time: int | None = None
    time_limit_seconds: int | None = None
    priority: int = 0
    features: str | None = None
    licenses: str | None = None
    dependency: str | None = None
    restarts: int = 0

    @property
    def rows(self) -> int:
        """Count the rows of ``squeue -r``."""
        return max(1, len(self.tasks))

    @property
    def cpus(self) -> int:
        return self.nodes * self.cpus_per_node

    @property
    def memory_bytes(self) -> int:
        return self.nodes * self.memory_per_node_bytes

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCluster:
    """A whole cluster at one moment; ``jobs`` are in the order of squeue, ``nodes`` by name."""

    name: str
    now: int
    jobs: tuple[SimulatedJob, ...]
    nodes: tuple[SimulatedNode, ...]
    partitions: tuple[Partition, ...]
    users: tuple[User, ...]
    accounts: tuple[str, ...]
    qos: tuple[str, ...]


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
