# SPDX-License-Identifier: Apache-2.0
"""Find which slurmd a slurmstepd belongs to, on a machine with several of them.

slurmstepd is no child of its slurmd, and its title has no node name. It listens on a socket in the spool directory of
its slurmd, called NODE_JOB.STEP. Users can give their sockets such names too, so only those that it has open count.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from slurmscope.sources.procfs.process import Missing, Process

# Descriptors of a slurmstepd that are checked; it has about twenty.
TARGET_LIMIT = 1000
SOCKET_TARGET = re.compile(r"socket:\[([0-9]{1,20})\]")
# The path ends the line; any character may be in the folders.
SOCKET_NAME = re.compile(rb"/([0-9A-Za-z._-]{1,128})_([0-9]{1,10})\.[0-9]{1,10}(?:\.[0-9]{1,10})?$")
INODE_FIELD = 6


def read_node_name(process: Process, job_id: int) -> str | Missing | None:
    """Return the node name of a slurmstepd; None while it does not listen yet."""
    files = process.open_files(TARGET_LIMIT)
    if isinstance(files, Missing):
        return files
    if files.targets is None:
        return Missing.DENIED
    found = (SOCKET_TARGET.fullmatch(target) for target in files.targets)
    inodes = {match[1].encode("ascii") for match in found if match}
    table = process.unix_sockets() if inodes else b""
    return table if isinstance(table, Missing) else parse_node_name(table, inodes, job_id)


def parse_node_name(table: bytes, inodes: Collection[bytes], job_id: int) -> str | None:
    """Find the socket of a step of this job among some inodes in ``/proc/net/unix``."""
    for line in table.splitlines():
        fields = line.split(None, INODE_FIELD + 1)
        if len(fields) > INODE_FIELD + 1 and fields[INODE_FIELD] in inodes:
            name = SOCKET_NAME.search(fields[INODE_FIELD + 1])
            if name and int(name[2]) == job_id:
                return name[1].decode("ascii")
    return None
