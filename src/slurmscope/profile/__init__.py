# SPDX-License-Identifier: Apache-2.0
"""Receive Slurm's own profile samples of steps and tasks."""
