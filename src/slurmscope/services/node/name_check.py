# SPDX-License-Identifier: Apache-2.0
"""Check that Slurm knows this node under the name that the agent gives it."""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.errors import CommandMissing, SlurmscopeError
from slurmscope.log import escape
from slurmscope.model.check import Check
from slurmscope.sources.slurm.commands import RunCommand

ADVICE = "set node.name to the NodeName of this host in slurm.conf: reports do not find jobs under another name"

SHOWN_NODES = 5


def check_node_name(run: RunCommand, node_name: str, host_name: str) -> Iterator[Check]:
    """Yield a check; none where Slurm's commands are not installed, as on a node without them."""
    try:
        answer = run("sinfo", ("--noheader", "--Node", "--format=%N %n"))
    except CommandMissing:
        return
    except SlurmscopeError as error:
        yield Check(name="node name", is_good=True, message=f"not checked: {error}")
        return
    # Node names, and the host names under which slurmctld reaches them.
    nodes = dict(line.split() for line in answer.decode("utf-8", "replace").splitlines() if len(line.split()) == 2)
    if node_name in nodes:
        yield Check(name="node name", is_good=True, message=f"Slurm knows this node as {escape(node_name)}")
        return
    short_name = host_name.partition(".")[0]
    own = sorted(name for name, host in nodes.items() if host in (host_name, short_name, "localhost"))
    shown = escape(", ".join(own[:SHOWN_NODES]))
    if len(own) > 1 and node_name == short_name:
        message = f"several slurmd run on this host ({shown}): their cgroups name the node"
        yield Check(name="node name", is_good=True, message=message)
        return
    message = f"Slurm does not know a node {escape(node_name)}" + (f"; it calls this host {shown}" if own else "")
    yield Check(name="node name", is_good=False, message=message, advice=ADVICE)
