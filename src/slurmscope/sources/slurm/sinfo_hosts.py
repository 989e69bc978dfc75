# SPDX-License-Identifier: Apache-2.0
"""Read the host name of each node: it differs from the node's name where several slurmd share a machine."""

from __future__ import annotations

from collections.abc import Mapping

from slurmscope.errors import MalformedAnswer

SEPARATOR = "\x1f"
ARGUMENTS = ("--noheader", "--all", "--Node", f"--Format=NodeList:{SEPARATOR},NodeHost:")


def parse_hosts(answer: bytes) -> Mapping[str, str]:
    """Return the short host name by node name."""
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("sinfo: the answer ends in the middle of a line")
    pairs = (line.partition(SEPARATOR) for line in answer.decode("utf-8", "replace").splitlines())
    return {node: host.partition(".")[0] for node, separator, host in pairs if separator and node and host}
