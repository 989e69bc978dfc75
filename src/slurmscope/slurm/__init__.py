# SPDX-License-Identifier: Apache-2.0
"""How Slurm is called: its commands, munge, names of clusters, and what this user may see."""
