# SPDX-License-Identifier: Apache-2.0
"""Settings: where they come from, and what is said when they are wrong."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmscope.core.config import Config, find_files, load, parse_path, read_password
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
    return load(SECTIONS, flags=flags or {}, environment=environment or {}, files=[file])


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

    load(SECTIONS, flags={}, environment={}, files=[file], other_keys=lambda: ["pond.depth"])


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
        load(SECTIONS, flags={}, environment={}, files=[tmp_path / "absent.toml"])
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary.toml is not UTF-8 text"):
        load(SECTIONS, flags={}, environment={}, files=[tmp_path / "binary.toml"])


def test_a_role_can_have_its_own_default() -> None:
    section = Section(name="garden", type=Garden, defaults={"tree_count": 9})

    assert 9 == load([section], flags={}, environment={}).of(Garden).tree_count


@pytest.mark.parametrize(("word", "expected"), [("true", True), ("off", False), ("YES", True), ("0", False)])
def test_truth_is_read_from_the_environment_in_many_words(tmp_path: Path, word: str, *, expected: bool) -> None:
    environment = {"SLURMSCOPE_GARDEN_IS_GREEN": word}

    assert expected is load_garden(tmp_path, environment=environment).of(Garden).is_green


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder with an empty folder for configuration files."""
    (tmp_path / "home" / ".config" / "slurmscope").mkdir(parents=True)
    return tmp_path / "home"


def user_file(home: Path, name: str) -> Path:
    return home / ".config" / "slurmscope" / name


def test_file_of_a_user_overrides_single_keys_of_the_site(tmp_path: Path, home: Path) -> None:
    site, own = tmp_path / "node.toml", user_file(home, "node.toml")
    site.write_text('[garden]\ntree-count = 5\nfruit = "pear"\n', encoding="utf-8")
    own.write_text("[garden]\ntree-count = 7\n", encoding="utf-8")

    files = find_files("node", home=str(home), system=tmp_path, is_root=False)
    config = load(SECTIONS, flags={}, environment={}, files=files)

    assert (site, own) == config.files
    assert (7, "pear") == (config.of(Garden).tree_count, config.of(Garden).fruit)
    assert [str(own), str(site)] == [config.values[f"garden.{key}"].origin for key in ("tree-count", "fruit")]


def test_wrong_key_is_reported_with_the_file_that_has_it(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("[garden]\ntree-count = 5\n", encoding="utf-8")
    bad.write_text("[garden]\nmoon = 5\n", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"bad\.toml: unknown key 'garden.moon'"):
        load(SECTIONS, flags={}, environment={}, files=[bad, good])


def test_root_reads_no_file_of_a_home_folder(tmp_path: Path, home: Path) -> None:
    user_file(home, "node.toml").touch()

    assert () == find_files("node", home=str(home), system=tmp_path, is_root=True)
    assert () == find_files("node", home="", system=tmp_path, is_root=False)
    assert () == find_files("node", home="relative", system=tmp_path, is_root=False)


def test_own_file_comes_before_that_of_another_service(tmp_path: Path) -> None:
    (tmp_path / "portal.toml").touch()
    assert (tmp_path / "portal.toml",) == find_files("report", "portal", system=tmp_path)

    (tmp_path / "report.toml").touch()
    assert (tmp_path / "report.toml",) == find_files("report", "portal", system=tmp_path)


def test_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "node.toml")

    with pytest.raises(ConfigError, match="not a regular file"):
        find_files("node", system=tmp_path)


def test_loop_of_links_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "node.toml").symlink_to(tmp_path / "node.toml")

    with pytest.raises(ConfigError, match="cannot be read: Too many levels of symbolic links"):
        find_files("node", system=tmp_path)


def test_file_that_every_user_may_write_is_refused_in_a_home_folder(tmp_path: Path, home: Path) -> None:
    own = user_file(home, "node.toml")
    own.touch()
    own.chmod(0o644 | stat.S_IWOTH)

    with pytest.raises(ConfigError, match="can be changed by another user"):
        find_files("node", home=str(home), system=tmp_path, is_root=False)


def test_file_that_every_user_may_write_is_refused_in_the_system_folder(tmp_path: Path) -> None:
    (tmp_path / "node.toml").touch()
    (tmp_path / "node.toml").chmod(0o666)

    with pytest.raises(ConfigError, match="can be changed by another user"):
        find_files("node", system=tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_refused_in_a_home_folder(tmp_path: Path, home: Path) -> None:
    user_file(home, "node.toml").touch()
    os.chown(user_file(home, "node.toml"), 65534, 65534)

    with pytest.raises(ConfigError, match="can be changed by another user"):
        find_files("node", home=str(home), system=tmp_path, is_root=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_home_that_the_user_may_not_enter_has_no_file(home: Path) -> None:
    user_file(home, "node.toml").touch()
    home.chmod(0o700)
    os.seteuid(65534)
    try:
        # As runuser -u slurmscope leaves HOME=/root.
        assert () == find_files("node", home=str(home), system=Path("/nonexistent"), is_root=False)
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file"), (b"", "empty"), (b"\n", "empty"), (b"x" * 5000, "longer"), (b"\xff\xfe", "UTF-8")],
)
def test_unusable_password_file_is_reported(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "password").write_bytes(content)

    with pytest.raises(ConfigError, match=reason):
        read_password(tmp_path / "password")


def test_password_is_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b" a b \r\nsomething else\n")

    assert " a b " == read_password(tmp_path / "password")
