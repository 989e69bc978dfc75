# SPDX-License-Identifier: Apache-2.0
"""Read Slurm's accounting: with sacct, or from slurmdbd's database."""
