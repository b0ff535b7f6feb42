#!/usr/bin/env bash
# Long forms of tests, in the release preset: what a job costs in memory over time, what checkpoints cost it, and whether
# it trains as well as plain PyTorch. Prints Markdown for docs/benchmarks.md; fails if a bound does not hold.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

usage() {
  cat <<USAGE
usage: scripts/soak.sh memory [WORKERS STEPS]    default: 8 500
       scripts/soak.sh checkpoints [STEPS EVERY] default: 17 4
       scripts/soak.sh quality
USAGE
}

what=${1:-}
[[ $# -gt 0 ]] && shift
case $what in
  memory) program=soak ;;
  checkpoints) program=checkpoint_stall ;;
  quality) program=quality ;;
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
STAGEWRIGHT_BIN=$(bin_dir "$preset") STAGEWRIGHT_TEST_MODELS=$STAGEWRIGHT_ROOT/build/$preset/test_models \
  PYTHONPATH=$STAGEWRIGHT_ROOT/clients/python OMP_NUM_THREADS=1 \
  "$VENV/bin/python" "tests/integration/$program.py" "$@"
