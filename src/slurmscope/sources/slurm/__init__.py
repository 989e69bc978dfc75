# SPDX-License-Identifier: Apache-2.0
"""Read the controller's state: Slurm's commands and slurmrestd."""
