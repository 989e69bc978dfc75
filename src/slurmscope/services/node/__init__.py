# SPDX-License-Identifier: Apache-2.0
"""Run the node agent: find the jobs of this node, track them, and keep their totals."""
