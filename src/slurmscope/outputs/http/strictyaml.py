# SPDX-License-Identifier: Apache-2.0
"""Parse a small YAML file strictly: scalars stay text, duplicate and unknown keys are errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from slurmscope.errors import ConfigError, MissingExtraError

FILE_LIMIT_BYTES = 1024 * 1024


def read_yaml(path: Path, *, feature: str) -> object:
    """Return the document as mappings, lists and strings; an empty file is an empty mapping."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError(feature, "auth") from error

    class Loader(yaml.BaseLoader):
        """Keep scalars as strings (a user may be called ``no``) and reject duplicate keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 - PyYAML's
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for position, key in enumerate(keys):
                if not isinstance(key, str) or key in keys[:position]:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!a} is a duplicate or not a string", node.start_mark
                    )
            return super().construct_mapping(node, deep=deep)

    try:
        document: object = yaml.load(_read_text(path), Loader)  # noqa: S506 - makes strings only
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid YAML: {_problem(error)}") from None
    return {} if document in (None, "") else document


def mapping(value: object, where: str, known: Collection[str] | None = None) -> Mapping[str, object]:
    """Return a mapping whose keys are all known; an empty value is an empty mapping."""
    if value in (None, ""):
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is not a mapping")
    for key in value:
        if known is not None and key not in known:
            raise ConfigError(f"{where}: unknown key {key!a}{_hint(key, known)}")
    return value


def texts(value: object, where: str) -> tuple[str, ...]:
    """Return a list of strings."""
    if value in (None, ""):
        return ()
    if not isinstance(value, list):
        raise ConfigError(f"{where} is not a list")
    return tuple(text(item, where) for item in value)


def text(value: object, where: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise ConfigError(f"{where} is not a string")
    return value


def boolean(value: object, where: str) -> bool:
    """Return a boolean, spelled as YAML 1.1 allows."""
    word = text(value, where).lower()
    if word in ("true", "yes", "on", "y"):
        return True
    if word in ("false", "no", "off", "n"):
        return False
    raise ConfigError(f"{where} is neither true nor false")


def choice(value: object, where: str, known: Collection[str]) -> str:
    """Return a string that is one of the known ones."""
    chosen = text(value, where)
    if chosen not in known:
        raise ConfigError(f"{where}: {chosen!a} is not one of {', '.join(known)}{_hint(chosen, known)}")
    return chosen


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_LIMIT_BYTES + 1)
        if len(data) > FILE_LIMIT_BYTES:
            raise ConfigError(f"{path} is larger than {FILE_LIMIT_BYTES} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error


def _problem(error: Exception) -> str:
    """Return the problem and its line; the full message would quote lines that may hold passwords."""
    mark = getattr(error, "problem_mark", None)
    place = f" in line {mark.line + 1}" if mark is not None else ""
    return f"{getattr(error, 'problem', None) or type(error).__name__}{place}"


def _hint(word: str, known: Collection[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {nearest[0]}?" if nearest else ""
