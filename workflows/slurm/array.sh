#!/bin/bash
# A whole job as arrays of plain processes: array.sh CONFIG PROCESSES [-o KEY=VALUE]...
#
# It needs no Dask and no open port: the processes share only the job's folder. Run it on a machine
# that can submit jobs; it ends with the job. A repeated run continues with the missing parts.
# MEMORY (default 4G) is the memory of a process. Slurm's variables, such as SBATCH_PARTITION, apply.
set -euo pipefail
config=$1 processes=$2
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
memory=${MEMORY:-4G}

alone() { srun --quiet --ntasks=1 --mem="$memory" latentscale "$@" </dev/null; }

# A queue that can't be asked at the moment says nothing of an array.
ended() {
  local said
  if said=$(squeue --noheader --jobs="$1" 2>&1); then [ -z "$said" ]; else
    [[ $said == *"Invalid job id"* ]]
  fi
}

job=$(alone stage prepare "$config" "$@")
logs=$(mktemp -d -p "${TMPDIR:-/tmp}" latentscale-array.XXXXXX)
stages=$(alone stage list "$job")
for stage in $stages; do
  while true; do
    parts=$(alone stage init "$job" "$stage")
    [ "$parts" = 0 ] && break
    of=$((parts < processes ? parts : processes))
    array=$(sbatch --parsable --array="1-$of" --ntasks=1 --mem="$memory" \
      --output="$logs/%A-%a.log" "$here/work.sh" "$job" "$stage" "$of")
    until ended "$array"; do sleep "${POLL:-5}"; done
    alone stage finalise "$job" "$stage"
  done
done
alone resume "$job" --here --quiet -o cluster.kind=serial
