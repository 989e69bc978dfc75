# SPDX-License-Identifier: Apache-2.0
"""Grant, check and revoke slurmscope's access to Slurm's accounting database."""
