# SPDX-License-Identifier: Apache-2.0
"""Tabulate nodes, GPUs, traced processes and Slurm's own samples of a job."""
