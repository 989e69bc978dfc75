# SPDX-License-Identifier: Apache-2.0
"""Share the fixtures of processes with the tests of the node agent."""

from tests.unit.node.conftest import reader, script

__all__ = ["reader", "script"]
