# SPDX-License-Identifier: Apache-2.0
"""Decode a munge credential: who made it, and what it vouches for.

munged refuses a credential that is expired, altered, or decoded before on this host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmscope.errors import CommandFailed, CommandRefused, MalformedAnswer
from slurmscope.sources.slurm.command import command_environment, find_command, run

TIMEOUT_SECONDS = 3.0
CREDENTIAL = re.compile(r"MUNGE:[A-Za-z0-9+/=]{1,4096}:")
# From munge.h: EMUNGE_BAD_CRED to EMUNGE_CRED_UNAUTHORIZED; 17 is a replay. Lower ones are about munged itself.
_FIRST_BAD_CREDENTIAL = 8
_LAST_BAD_CREDENTIAL = 18
_EXIT_CODE = re.compile(r"exit code ([0-9]+)")
_OUTPUT_LIMIT_BYTES = 64 * 1024
_UID = re.compile(rb"^UID:\s+([0-9]{1,10})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MungeCredential:
    """Hold the user that made a credential, and its payload."""

    uid: int
    payload: bytes


def decode_credential(text: str, socket_path: Path | None, environment: Mapping[str, str]) -> MungeCredential | None:
    """Return what a credential holds, None if munged refuses it; raise a CommandError if munged cannot be asked."""
    if not CREDENTIAL.fullmatch(text):
        return None
    program = find_command("unmunge", None)
    argv = [str(program), "--numeric", "--keys=UID"]
    if socket_path is not None:
        argv.append(f"--socket={socket_path}")
    try:
        output = run(
            argv,
            timeout_seconds=TIMEOUT_SECONDS,
            environment=command_environment(environment),
            stdin=text.encode("ascii"),
            output_limit_bytes=_OUTPUT_LIMIT_BYTES,
        )
    except CommandFailed as error:
        code = _EXIT_CODE.search(str(error))
        if code is None or not _FIRST_BAD_CREDENTIAL <= int(code[1]) <= _LAST_BAD_CREDENTIAL:
            raise CommandRefused(error.argv, f"munged did not decode a credential: {error}") from error
        return None
    return parse_credential(output.stdout)


def parse_credential(answer: bytes) -> MungeCredential:
    """Parse the output of unmunge: metadata, an empty line, and the payload."""
    metadata, separator, payload = answer.partition(b"\n\n")
    uid = _UID.search(metadata)
    if uid is None or not separator:
        raise MalformedAnswer("unmunge: the answer names no user")
    return MungeCredential(int(uid[1]), payload)
