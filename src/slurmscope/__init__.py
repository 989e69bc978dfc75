# SPDX-License-Identifier: Apache-2.0
"""Show what a Slurm cluster and every job on it really do."""

__version__ = "0.1.0"
