# SPDX-License-Identifier: Apache-2.0
"""Answer as Slurm's commands do, from a simulated cluster."""
