#!/usr/bin/env bash
# Long forms of tests, in the release preset: what a job costs in memory over time, what checkpoints cost it, whether it
# trains as well as plain PyTorch, and whether a planner and workers last for hours under work and faults. Prints Markdown for docs/benchmarks.md; fails if a bound does not hold.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

usage() {
  cat <<USAGE
usage: scripts/soak.sh memory [WORKERS STEPS]    default: 8 500
       scripts/soak.sh checkpoints [STEPS EVERY] default: 17 4
       scripts/soak.sh quality
       scripts/soak.sh hours [HOURS [SEED]]      default: 8 1; jobs, plans, cancellations and faults, a fraction will do
USAGE
}

what=${1:-}
[[ $# -gt 0 ]] && shift
case $what in
  memory) program=integration/soak ;;
  checkpoints) program=integration/checkpoint_stall ;;
  quality) program=integration/quality ;;
  hours) program=fault/soak_hours ;;
  -h | --help)
    usage
    exit 0
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac

preset=${STAGEWRIGHT_PRESET:-release}
scripts/build.sh "$preset" stagewright stagewright-planner stagewright-worker >&2
export PYTHONPATH=$STAGEWRIGHT_ROOT/clients/python:$STAGEWRIGHT_ROOT/tests/integration OMP_NUM_THREADS=1
export STAGEWRIGHT_BIN STAGEWRIGHT_TEST_MODELS=$STAGEWRIGHT_ROOT/build/$preset/test_models
STAGEWRIGHT_BIN=$(bin_dir "$preset")
[[ $what == hours ]] && make_test_models "$STAGEWRIGHT_TEST_MODELS"
"$VENV/bin/python" "tests/$program.py" "$@"
