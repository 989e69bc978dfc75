# SPDX-License-Identifier: Apache-2.0
"""Answer like Slurm's commands from a simulated cluster."""
