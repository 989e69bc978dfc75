#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A batch script whose tasks are traced: sbatch traced-job.sh
#
# slurmscope run measures a command and sends samples of its processes to the socket of the node agent, or to the endpoint
# in SLURM_EXPORTER with the token of this job; taskprolog-slurmscope sets both. Nothing here is needed for the job
# itself: if no endpoint answers, the command runs as it would without.

#SBATCH --job-name=traced
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00

# Seconds between two samples.
export SAMPLE_RATE=10

srun slurmscope run --quiet -- ./solver --input data.nc
