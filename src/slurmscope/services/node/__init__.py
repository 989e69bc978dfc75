# SPDX-License-Identifier: Apache-2.0
"""Wire the node agent: find the jobs of this node, follow them, and keep their totals."""
