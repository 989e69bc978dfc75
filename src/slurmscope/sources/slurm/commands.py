# SPDX-License-Identifier: Apache-2.0
"""Run Slurm's commands with the configured path and timeout."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.http_client.address import ServerAddress, parse_address
from slurmscope.settings import one_of, parse_text, setting
from slurmscope.sources.slurm.command import SEARCH_PATH, command_environment, find_command, run
from slurmscope.units import parse_positive_seconds

RunCommand = Callable[[str, Sequence[str]], bytes]
"""Run a command of Slurm by its name and return what it printed."""

SLURMRESTD_PORT = 6820
"""The port in the examples of the slurmrestd manual."""

_HEADER_WORD = re.compile(r"[!-~]{0,256}")
_VERSION = re.compile(r"(?:v0\.0\.[0-9]{1,3})?")


def parse_header_word(given: object) -> str:
    """Parse a user name that is valid in an HTTP header."""
    text = parse_text(given)
    if not _HEADER_WORD.fullmatch(text):
        raise ValueError(f"{given!r} is not a valid user name; use up to 256 printable ASCII characters without spaces")
    return text


def parse_version(given: object) -> str:
    """Parse a version of the slurmrestd API."""
    text = parse_text(given)
    if not _VERSION.fullmatch(text):
        raise ValueError(f"{given!r} is not an API version such as v0.0.42")
    return text


def parse_rest_url(given: object) -> ServerAddress:
    """Parse the address of slurmrestd."""
    return parse_address(given, default_port=SLURMRESTD_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """Hold how Slurm's commands and slurmrestd are called."""

    bin_path: Path | None = setting(
        None,
        help="Folder with Slurm's commands; default is to search PATH.",
        parse=parse_path,
        metavar="DIR",
    )
    poll_limit: float = setting(
        10.0,
        help="Minimum interval between Slurm calls of the same kind, regardless of the number of scrapes.",
        parse=parse_positive_seconds,
        metavar="DURATION",
        environment=("POLL_LIMIT",),
    )
    timeout: float = setting(
        8.0,
        help="Timeout for Slurm commands and slurmrestd requests.",
        parse=parse_positive_seconds,
        metavar="DURATION",
        environment=("CLI_TIMEOUT",),
    )
    private_data: str = setting(
        "respect",
        help="Slurm's PrivateData: respect drops series by user, job or account that it hides; ignore exposes them.",
        parse=one_of("respect", "ignore"),
        metavar="respect|ignore",
    )
    backend: str = setting(
        "text",
        help="Source of jobs and nodes: Slurm commands with text or json output, or slurmrestd (rest).",
        parse=one_of("text", "json", "rest"),
        metavar="text|json|rest",
    )
    rest_url: ServerAddress | None = setting(
        None,
        help="Address of slurmrestd, for the rest backend: http[s]://HOST:PORT or unix:/PATH.",
        parse=parse_rest_url,
        metavar="URL",
    )
    rest_token_file: Path | None = setting(
        None,
        help="File with the JSON Web Token for slurmrestd; it is reread when it changes.",
        parse=parse_path,
        metavar="FILE",
    )
    rest_user: str = setting(
        "",
        help="User name to send with the token; required by Slurm 22.05 only.",
        parse=parse_header_word,
        metavar="USER",
    )
    rest_version: str = setting(
        "",
        help="API version of slurmrestd, such as v0.0.42; default is the newest that both sides support.",
        parse=parse_version,
        metavar="VERSION",
    )


def random_separator() -> str:
    """Return a separator that cannot occur in a job name or a drain reason: it is random and new for every call."""
    return secrets.token_hex(8)


class SlurmCommands:
    """Run Slurm's commands and count the calls."""

    def __init__(self, settings: SlurmSettings, environment: Mapping[str, str]) -> None:
        """Set what every call needs; ``environment`` is that of this process."""
        self.runs: Counter[str] = Counter()
        self._settings = settings
        self._environment = command_environment(environment)
        self._search_path = f"{environment.get('PATH', '')}:{SEARCH_PATH}"

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        """Return the standard output of one command, or raise a CommandError that names the cause."""
        program = find_command(name, self._settings.bin_path, search_path=self._search_path)
        self.runs[name] += 1
        answer = run([str(program), *arguments], timeout_seconds=self._settings.timeout, environment=self._environment)
        return answer.stdout
