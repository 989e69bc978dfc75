# SPDX-License-Identifier: Apache-2.0
"""Wire the edges to the core: what runs, when, and what happens when it fails."""
