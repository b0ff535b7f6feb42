#!/usr/bin/env bash
# The long forms of tests/fault, in the release preset: planners and workers that are killed, stopped, cut off and ended while
# clients write and jobs train, at random points of a seed. Prints a Markdown table; fails if anything was lost. `workers`,
# `planner` and `leader` say every 20 faults what is known, and print their table also when they are interrupted.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

usage() {
  cat <<USAGE
usage: scripts/fault.sh workers [FAULTS [SEED [WORKERS...]]]
                                                   default: 60 1; on workers of jobs that train
       scripts/fault.sh combined [CASES [SEED [WORKERS...]]]
                                                   default: 60 1; several faults at once, on workers and planner of jobs that train
       scripts/fault.sh times [DEATHS]             default: 20; from the death of a worker to the job's next step
       scripts/fault.sh planner [KILLS [SEED]]     default: 200 1; of a planner, under clients that keep a history
       scripts/fault.sh leader [FAULTS [SEED]]     default: 30 1; of the leader of three planners over etcd, likewise
       scripts/fault.sh points                     at every durable step of planner and worker (preset dev: there are none
                                                   in release)
USAGE
}

what=${1:-}
[[ $# -gt 0 ]] && shift
case $what in
  workers) program=faults ;;
  combined) program=combined_faults ;;
  times) program=recovery_time ;;
  planner) program=planner_kills ;;
  leader) program=leader_faults ;;
  points) program=failpoints ;;
  -h | --help)
    usage
    exit 0
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
for number in "$@"; do
  [[ $number =~ ^[0-9]+$ ]] || die "scripts/fault.sh: '$number' is no number"
done

preset=${STAGEWRIGHT_PRESET:-release}
[[ $what == points ]] && preset=dev
scripts/build.sh "$preset" stagewright stagewright-planner stagewright-worker >&2
export PYTHONPATH=$STAGEWRIGHT_ROOT/clients/python:$STAGEWRIGHT_ROOT/tests/integration OMP_NUM_THREADS=1
export STAGEWRIGHT_BIN STAGEWRIGHT_TEST_MODELS=$STAGEWRIGHT_ROOT/build/$preset/test_models
STAGEWRIGHT_BIN=$(bin_dir "$preset")
make_test_models "$STAGEWRIGHT_TEST_MODELS"
"$VENV/bin/python" "tests/fault/$program.py" "$@"
