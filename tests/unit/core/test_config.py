# SPDX-License-Identifier: Apache-2.0
"""Settings: where they come from, and what is said when they are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmscope.core.config import Config, load, parse_path
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Section, one_of, setting
from slurmscope.core.units import parse_positive_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Garden:
    """A section made for these tests."""

    tree_count: int = setting(3, "Trees.")
    is_green: bool = setting(True, "Green.")
    names: tuple[str, ...] = setting((), "Names.")
    kinds: tuple[str, ...] = setting(("oak",), "Kinds.")
    pause: float = setting(10.0, "Pause.", parse=parse_positive_seconds, environment=("PAUSE_LIMIT",))
    fruit: str = setting("apple", "Fruit.", parse=one_of("apple", "pear"))
    ledger: Path | None = setting(None, "Ledger.", parse=parse_path)
    key_file: str = setting("", "Secret.", key="key.file", is_secret=True)


SECTIONS = (Section(name="garden", type=Garden),)


def load_garden(
    tmp_path: Path, text: str = "", *, flags: dict[str, object] | None = None, environment: dict[str, str] | None = None
) -> Config:
    file = tmp_path / "slurmscope.toml"
    file.write_text(text, encoding="utf-8")
    return load(SECTIONS, flags=flags or {}, environment=environment or {}, file=file)


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    text = "[garden]\ntree-count = 5\n"
    name = "SLURMSCOPE_GARDEN_TREE_COUNT"

    assert 3 == load_garden(tmp_path).of(Garden).tree_count
    assert 5 == load_garden(tmp_path, text).of(Garden).tree_count
    assert 6 == load_garden(tmp_path, text, environment={name: "6"}).of(Garden).tree_count
    flags: dict[str, object] = {"garden.tree-count": "7"}
    assert 7 == load_garden(tmp_path, text, environment={name: "6"}, flags=flags).of(Garden).tree_count


def test_origin_of_every_value_is_known(tmp_path: Path) -> None:
    config = load_garden(
        tmp_path, "garden.fruit = 'pear'", environment={"PAUSE_LIMIT": "2"}, flags={"garden.names": ("a",)}
    )

    assert {
        "garden.tree-count": "default",
        "garden.is-green": "default",
        "garden.names": "flag",
        "garden.kinds": "default",
        "garden.pause": "PAUSE_LIMIT",
        "garden.fruit": str(tmp_path / "slurmscope.toml"),
        "garden.ledger": "default",
        "garden.key.file": "default",
    } == {key: resolved.origin for key, resolved in config.values.items()}
    assert config.is_default("garden.tree-count")
    assert not config.is_default("garden.names")


def test_own_variable_beats_that_of_an_older_tool(tmp_path: Path) -> None:
    environment = {"PAUSE_LIMIT": "2", "SLURMSCOPE_GARDEN_PAUSE": "3"}

    assert 3.0 == load_garden(tmp_path, environment=environment).of(Garden).pause


@pytest.mark.parametrize("key", ["tree_count", "is_green", "pause", "fruit"])
def test_empty_variable_counts_as_not_set(tmp_path: Path, key: str) -> None:
    name = f"SLURMSCOPE_GARDEN_{key.upper()}"
    text = "garden.tree-count = 5\ngarden.is-green = false\ngarden.pause = 7\ngarden.fruit = 'pear'"

    config = load_garden(tmp_path, text, environment={name: "", "PAUSE_LIMIT": ""})

    assert (5, False, 7.0, "pear") == tuple(
        getattr(config.of(Garden), each) for each in ("tree_count", "is_green", "pause", "fruit")
    )


def test_empty_variable_is_an_empty_list_and_no_path(tmp_path: Path) -> None:
    assert () == load_garden(tmp_path, environment={"SLURMSCOPE_GARDEN_KINDS": ""}).of(Garden).kinds
    with pytest.raises(ConfigError, match="SLURMSCOPE_GARDEN_LEDGER: the path is empty"):
        load_garden(tmp_path, environment={"SLURMSCOPE_GARDEN_LEDGER": ""})


def test_lists_come_from_file_and_environment(tmp_path: Path) -> None:
    assert ("a", "b") == load_garden(tmp_path, "garden.names = ['a', 'b']").of(Garden).names
    assert ("a", "b") == load_garden(tmp_path, environment={"SLURMSCOPE_GARDEN_NAMES": "a,b"}).of(Garden).names


def test_empty_value_is_an_empty_list_whatever_the_default(tmp_path: Path) -> None:
    assert ("oak",) == load_garden(tmp_path).of(Garden).kinds
    assert () == load_garden(tmp_path, flags={"garden.kinds": ("",)}).of(Garden).kinds
    assert () == load_garden(tmp_path, environment={"SLURMSCOPE_GARDEN_KINDS": ""}).of(Garden).kinds
    assert () == load_garden(tmp_path, "garden.kinds = []").of(Garden).kinds
    assert () == load_garden(tmp_path, "garden.kinds = ['']").of(Garden).kinds


def test_unknown_key_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'garden.tree-cuont'; did you mean 'garden.tree-count'\?"):
        load_garden(tmp_path, "[garden]\ntree-cuont = 5\n")
    with pytest.raises(ConfigError, match=r"unknown key 'xyzzy'$"):
        load_garden(tmp_path, "xyzzy = 5\n")


def test_removed_key_and_variable_lead_to_what_replaces_them(tmp_path: Path) -> None:
    environment = {"SLURMSCOPE_SLURM_INTERVAL_NODES": "5s", "SLURMSCOPE_SLURM_INTERVAL_DBD": ""}

    with pytest.raises(ConfigError) as caught:
        load_garden(tmp_path, "slurm.interval.jobs = '5s'", environment=environment)

    use = "use slurm.poll-limit, or slurm.slow-interval for what changes slowly"
    assert [
        f"SLURMSCOPE_SLURM_INTERVAL_NODES was removed: {use}",
        f"slurm.interval.jobs in {tmp_path / 'slurmscope.toml'} was removed: {use}",
    ] == str(caught.value).splitlines()


def test_keys_of_other_roles_are_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "shared.toml"
    file.write_text("[pond]\ndepth = 2\n", encoding="utf-8")

    load(SECTIONS, flags={}, environment={}, file=file, other_keys=lambda: ["pond.depth"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("garden.tree-count = -1", "garden.tree-count in .*: -1 is not a whole number of 0 or more"),
        ("garden.tree-count = true", "is not a whole number"),
        ("garden.tree-count = 'many'", "'many' is not a whole number"),
        ("garden.is-green = 'perhaps'", "'perhaps' is not a boolean; use true or false"),
        ("garden.names = 5", "5 is not a list of strings"),
        ("garden.names = ['a', 5]", "5 is not one line of text"),
        ("garden.pause = 0", "0 is not a duration greater than 0s"),
        ("garden.fruit = 'plum'", "'plum' is not one of apple, pear"),
        ('garden.key.file = "a\\nb"', "is not one line of text"),
        ("garden = [", "is not valid TOML"),
        ("a = " + "[" * 5000 + "]" * 5000, "is not valid TOML"),
        ("#" * (1 << 21), "is larger than"),
    ],
)
def test_wrong_value_gives_one_sentence_that_names_it(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        load_garden(tmp_path, text)
    assert 1 == len(str(caught.value).splitlines())


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_garden(
            tmp_path,
            "garden.fruit = 'plum'\nx = 1",
            environment={"PAUSE_LIMIT": "no"},
            flags={"garden.tree-count": "x"},
        )
    named = [line.split(":")[0] for line in str(caught.value).splitlines()]
    assert [
        "--garden.tree-count",
        "PAUSE_LIMIT",
        f"garden.fruit in {tmp_path}/slurmscope.toml",
        f"{tmp_path}/slurmscope.toml",
    ] == named


def test_missing_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.toml cannot be read: No such file"):
        load(SECTIONS, flags={}, environment={}, file=tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary.toml is not UTF-8 text"):
        load(SECTIONS, flags={}, environment={}, file=tmp_path / "binary.toml")


def test_a_role_can_have_its_own_default() -> None:
    section = Section(name="garden", type=Garden, defaults={"tree_count": 9})

    assert 9 == load([section], flags={}, environment={}).of(Garden).tree_count


@pytest.mark.parametrize(("word", "expected"), [("true", True), ("off", False), ("YES", True), ("0", False)])
def test_truth_is_read_from_the_environment_in_many_words(tmp_path: Path, word: str, *, expected: bool) -> None:
    environment = {"SLURMSCOPE_GARDEN_IS_GREEN": word}

    assert expected is load_garden(tmp_path, environment=environment).of(Garden).is_green
