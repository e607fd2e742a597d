#!/bin/bash
# One process of an array: work.sh JOB STAGE PROCESSES
set -euo pipefail
exec latentscale stage work "$1" "$2" --partition "$SLURM_ARRAY_TASK_ID/$3"
