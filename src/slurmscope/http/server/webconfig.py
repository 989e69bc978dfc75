# SPDX-License-Identifier: Apache-2.0
"""Read the web configuration file of Prometheus exporters: TLS, client certificates and passwords.

Settings that this Python cannot enforce are refused: a server that checks less than its file says is worse than
one that does not start.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from slurmscope.core.errors import ConfigError, MissingExtraError
from slurmscope.http.server.response import Header

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
    if value in (None, ""):
        return ()
    if not isinstance(value, list):
        raise ConfigError(f"{where} is not a list")
    return tuple(text(item, where) for item in value)


def text(value: object, where: str) -> str:
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


FEATURE = "--web.config.file"
LOWEST_COST, HIGHEST_COST = 4, 18
"""Cost of a bcrypt hash; each step doubles its time, 18 takes about 20 seconds."""

_TOP_KEYS = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")
_INLINE_KEYS = ("cert", "key", "client_ca")
_FILE_KEYS = ("cert_file", "key_file", "client_ca_file")
_TLS_KEYS = (
    "cert_file", "key_file", "client_auth_type", "client_ca_file", "client_allowed_sans", "min_version", "max_version",
    "cipher_suites", "prefer_server_cipher_suites", "curve_preferences",
)  # fmt: skip
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
    "Content-Security-Policy": (),
}
_CLIENT_AUTH_TYPES = (
    "NoClientCert", "RequestClientCert", "RequireAnyClientCert", "RequireClientCert", "VerifyClientCertIfGiven",
    "RequireAndVerifyClientCert",
)  # fmt: skip
_VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}\Z")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h))+\Z")
_DURATION_PART = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class ClientAuth(enum.Enum):
    """Whether client certificates are requested and verified."""

    NONE = "NoClientCert"
    VERIFY_IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRE_AND_VERIFY = "RequireAndVerifyClientCert"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The TLS section of the file; names are those of the file."""

    cert_file: Path | None = None
    cert: str = ""
    key_file: Path | None = None
    key: str = field(default="", repr=False)
    client_auth: ClientAuth = ClientAuth.NONE
    client_ca_file: Path | None = None
    client_ca: str = ""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefers_server_ciphers: bool = True
    curve_preferences: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for file in (self.cert_file, self.key_file, self.client_ca_file) if file)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """Allow ``burst`` requests at once and one more per interval."""

    interval_seconds: float
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """The whole file; ``repr`` hides the password hashes."""

    tls: TlsSettings | None = None
    headers: tuple[Header, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    rate_limit: RateLimit | None = None
    removed: frozenset[str] = field(default=frozenset(), compare=False)
    """Protections that are off by an explicit word, which no half-written file has."""


def read_web_config(path: Path) -> WebConfig:
    """Read and validate the file; paths in it are relative to its directory."""
    top = mapping(read_yaml(path, feature=FEATURE), str(path), _TOP_KEYS)
    try:
        http = mapping(top.get("http_server_config"), "http_server_config", ("http2", "headers"))
        if "http2" in http:
            # Accepted without effect: HTTP/2 has no benefit for one page per scrape.
            boolean(http["http2"], "http2")
        return WebConfig(
            tls=_parse_tls(top.get("tls_server_config"), path.parent),
            headers=_parse_headers(http.get("headers")),
            users=_parse_users(top.get("basic_auth_users")),
            rate_limit=_parse_rate_limit(top.get("rate_limit")),
            removed=_find_removed(top),
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _find_removed(top: Mapping[str, object]) -> frozenset[str]:
    removed = {key for key in ("basic_auth_users", "tls_server_config") if top.get(key) == {}}
    tls = top.get("tls_server_config")
    if isinstance(tls, dict) and tls.get("client_auth_type") == ClientAuth.NONE.value:
        removed.update(("client_auth_type", "client_allowed_sans"))
    return frozenset(removed)


def _parse_tls(value: object, folder: Path) -> TlsSettings | None:
    section = mapping(value, "tls_server_config", (*_TLS_KEYS, *_INLINE_KEYS))
    given = {key: item for key, item in section.items() if item != ""}
    if not given:
        return None
    for key in _INLINE_KEYS:
        if key in given and f"{key}_file" in given:
            raise ConfigError(f"tls_server_config: {key} and {key}_file exclude each other")
        if key != "client_ca" and key not in given and f"{key}_file" not in given:
            raise ConfigError(f"tls_server_config: {key}_file is missing")
    paths = {key: _parse_path(given[key], key, folder) for key in _FILE_KEYS if key in given}
    inline = {key: text(given.get(key, ""), key) for key in _INLINE_KEYS}
    settings = TlsSettings(
        cert_file=paths.get("cert_file"),
        cert=inline["cert"],
        key_file=paths.get("key_file"),
        key=inline["key"],
        client_ca_file=paths.get("client_ca_file"),
        client_ca=inline["client_ca"],
        client_auth=_parse_client_auth(given.get("client_auth_type", "NoClientCert")),
        client_allowed_sans=texts(given.get("client_allowed_sans"), "client_allowed_sans"),
        min_version=_parse_version(given.get("min_version", "TLS12"), "min_version"),
        max_version=_parse_version(given.get("max_version", "TLS13"), "max_version"),
        cipher_suites=texts(given.get("cipher_suites"), "cipher_suites"),
        prefers_server_ciphers=boolean(given.get("prefer_server_cipher_suites", "true"), "prefer_server_cipher_suites"),
        curve_preferences=texts(given.get("curve_preferences"), "curve_preferences"),
    )
    _check_tls(settings, has_sans="client_allowed_sans" in given)
    return settings


def _parse_path(value: object, where: str, folder: Path) -> Path:
    path = text(value, where)
    if not path.isprintable():
        raise ConfigError(f"{where}: {path!a} is not a file name")
    return folder / path


def _check_tls(settings: TlsSettings, *, has_sans: bool) -> None:
    has_authority = settings.client_ca_file is not None or bool(settings.client_ca)
    if settings.min_version > settings.max_version:
        raise ConfigError("min_version is above max_version")
    if settings.client_auth is ClientAuth.REQUIRE_AND_VERIFY and not has_authority:
        raise ConfigError(
            "client_auth_type RequireAndVerifyClientCert needs client_ca_file: the authorities of this system would "
            "admit everyone with a public certificate"
        )
    if has_authority and settings.client_auth is ClientAuth.NONE:
        raise ConfigError("client_ca_file has no effect without client_auth_type RequireAndVerifyClientCert")
    if has_sans and settings.client_auth is not ClientAuth.REQUIRE_AND_VERIFY:
        raise ConfigError("client_allowed_sans needs client_auth_type RequireAndVerifyClientCert")
    if has_sans and not settings.client_allowed_sans:
        raise ConfigError("client_allowed_sans is empty and would refuse every client")


def _parse_client_auth(value: object) -> ClientAuth:
    name = choice(value, "client_auth_type", _CLIENT_AUTH_TYPES)
    try:
        return ClientAuth(name)
    except ValueError as error:
        raise ConfigError(
            f"client_auth_type {name} accepts certificates without verifying them, which is not supported; "
            "use RequireAndVerifyClientCert"
        ) from error


def _parse_version(value: object, where: str) -> str:
    version = choice(value, where, _VERSIONS)
    if version in ("TLS10", "TLS11"):
        raise ConfigError(f"{where}: {version} is not secure and not supported; use TLS12 or TLS13")
    return version


def _parse_headers(value: object) -> tuple[Header, ...]:
    given = mapping(value, "headers", tuple(_HEADERS))
    headers = [(name, text(content, name)) for name, content in given.items() if content != ""]
    for name, content in headers:
        if _HEADERS[name]:
            choice(content, name, _HEADERS[name])
        if not content.isprintable() or not content.isascii():
            raise ConfigError(f"{name}: a header may only contain printable ASCII characters")
    return tuple(headers)


def _parse_users(value: object) -> Mapping[str, str]:
    users = {user: text(digest, "basic_auth_users") for user, digest in mapping(value, "basic_auth_users").items()}
    for user, digest in users.items():
        match = _BCRYPT.match(digest)
        if match is None:
            raise ConfigError(f"basic_auth_users: the value of {user!a} is not a bcrypt hash")
        if not LOWEST_COST <= int(match[1]) <= HIGHEST_COST:
            raise ConfigError(f"basic_auth_users: the cost of {user!a} is not from {LOWEST_COST} to {HIGHEST_COST}")
        if ":" in user or not user.isprintable():
            raise ConfigError(f"basic_auth_users: {user!a} contains a character that cannot be sent in a user name")
    return MappingProxyType(users)


def _parse_rate_limit(value: object) -> RateLimit | None:
    given = mapping(value, "rate_limit", ("interval", "burst"))
    interval_seconds = _parse_duration(text(given.get("interval", "0"), "interval"))
    burst = text(given.get("burst", "0"), "burst")
    if not re.match(r"[0-9]{1,9}\Z", burst):
        raise ConfigError("rate_limit: burst is not a number of requests")
    if interval_seconds == 0:
        return None
    if int(burst) == 0:
        raise ConfigError("rate_limit: burst is 0 and would refuse every request")
    return RateLimit(interval_seconds=interval_seconds, burst=int(burst))


def _parse_duration(given: str) -> float:
    if given in ("", "0"):
        return 0.0
    if not _DURATION.match(given):
        raise ConfigError(f"rate_limit: interval {given!a} is not a duration such as 500ms or 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(given))
