# SPDX-License-Identifier: Apache-2.0
"""Show the running jobs of a node or a user in the terminal."""
