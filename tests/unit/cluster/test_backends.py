# SPDX-License-Identifier: Apache-2.0
"""The backend that is set is the one that asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from slurmscope.cluster.backends import TextCommands, open_backend
from slurmscope.cluster.json.backends import JsonCommands, Slurmrestd
from slurmscope.cluster.sources import Backend
from slurmscope.cluster.squeue import StartWindow
from slurmscope.core.errors import CommandFailed, CommandTimedOut, ConfigError, MissingExtraError
from slurmscope.http.client.address import parse_address
from slurmscope.slurm.command import SlurmCommands, SlurmSettings

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm-24.11"
SEPARATOR = "5eparat0r"


def choose(settings: SlurmSettings) -> Backend:
    return open_backend(settings, SlurmCommands(settings, {}))


def test_text_is_the_default() -> None:
    assert isinstance(choose(SlurmSettings()), TextCommands)


def test_json_and_rest_are_chosen_by_name() -> None:
    assert isinstance(choose(SlurmSettings(backend="json")), JsonCommands)
    assert isinstance(choose(SlurmSettings(backend="rest", rest_url=parse_address("unix:/s"))), Slurmrestd)


def test_rest_without_an_address_is_rejected_at_the_start() -> None:
    with pytest.raises(ConfigError, match="rest-url"):
        choose(SlurmSettings(backend="rest"))


@pytest.mark.parametrize("name", ["json", "rest"])
def test_missing_package_is_named(name: str) -> None:
    settings = SlurmSettings(backend=name)

    with pytest.raises(MissingExtraError, match=rf"--slurm\.backend {name} needs the extra 'rest'"):
        open_backend(settings, SlurmCommands(settings, {}), has_package=lambda _name: False)


def test_text_needs_no_package() -> None:
    settings = SlurmSettings()

    assert isinstance(
        open_backend(settings, SlurmCommands(settings, {}), has_package=lambda _name: False), TextCommands
    )


def test_columns_are_separated_by_a_new_word_each_time() -> None:
    words = iter([SEPARATOR, "an0ther"])
    questions: list[str] = []

    def run(name: str, arguments: Sequence[str]) -> bytes:
        questions.append(f"{name} {arguments[-1]}")
        answer = (FIXTURES / "both-nodes.txt").read_bytes()
        return answer.replace(SEPARATOR.encode(), b"an0ther") if "an0ther" in arguments[-1] else answer

    backend = TextCommands(run, lambda: next(words))

    assert backend.read_nodes() == backend.read_nodes()
    assert [True, False] == [SEPARATOR in question for question in questions]


def test_words_cannot_be_foreseen() -> None:
    questions: list[str] = []

    def run(_name: str, arguments: Sequence[str]) -> bytes:
        questions.append(arguments[-1])
        return b""

    backend = TextCommands(run)
    backend.read_nodes()
    backend.read_nodes()

    assert 2 == len(set(questions))


def test_jobs_are_read_from_columns() -> None:
    def run(name: str, _arguments: Sequence[str]) -> bytes:
        assert "squeue" == name
        return (FIXTURES / "both-jobs.txt").read_bytes()

    jobs = TextCommands(run).read_jobs(StartWindow(0, 0), 1.5)

    assert (1.5, 0) == (jobs.taken_at_seconds, jobs.unreadable_rows)
    assert jobs.groups


class ManyNodes:
    """Answer like a cluster whose sinfo takes too long, or whose scontrol does not know nodes."""

    def __init__(self, *, is_slow: bool = False, knows_records: bool = True) -> None:
        self.requested: list[str] = []
        self._is_slow = is_slow
        self._knows_records = knows_records

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        self.requested.append(name)
        if name == "scontrol":
            if not self._knows_records:
                raise CommandFailed([name], "invalid entity")
            return b"No nodes in the system\n"
        if self._is_slow:
            raise CommandTimedOut([name], "sinfo was killed")
        return b""


def test_slow_sinfo_is_replaced_at_once_and_for_good() -> None:
    slurm = ManyNodes(is_slow=True)
    backend = TextCommands(slurm.run)

    backend.read_nodes()
    backend.read_nodes()

    assert ["sinfo", "scontrol", "scontrol"] == slurm.requested


def test_slow_sinfo_stays_where_scontrol_knows_no_nodes() -> None:
    slurm = ManyNodes(is_slow=True, knows_records=False)
    backend = TextCommands(slurm.run)

    with pytest.raises(CommandFailed):
        backend.read_nodes()
    with pytest.raises(CommandTimedOut):
        backend.read_nodes()

    assert ["sinfo", "scontrol", "scontrol", "sinfo"] == slurm.requested


def test_scontrol_that_failed_once_is_used_again() -> None:
    (row, *_) = (FIXTURES / "both-nodes.txt").read_text().split(f">{SEPARATOR}\n")
    name, _, rest = row.partition("<")
    rows = "".join(f"{name}{number}<{rest}>{SEPARATOR}\n" for number in range(2001)).encode()
    requested: list[str] = []

    def run(command: str, _arguments: Sequence[str]) -> bytes:
        requested.append(command)
        if requested == ["sinfo", "scontrol"]:
            raise CommandFailed([command], "Unable to contact slurm controller")
        return rows if command == "sinfo" else b"No nodes in the system\n"

    backend = TextCommands(run, lambda: SEPARATOR)
    assert [2001, 2001, 0] == [len(backend.read_nodes().nodes) for _ in range(3)]
    assert ["sinfo", "scontrol", "sinfo", "scontrol"] == requested
