#!/usr/bin/env bash
# The long form of tests/fault, in the release preset: kills, stops and ends planner and workers in the middle of jobs, a
# seeded number of times. Prints a Markdown table; fails if a job does not end as if nothing had been.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

case ${1:-} in
  -h | --help)
    echo "usage: scripts/fault.sh [FAULTS [SEED]]    default: 60 1"
    exit 0
    ;;
  *[!0-9]*) die "scripts/fault.sh: '$1' is no number of faults" ;;
esac

preset=${STAGEWRIGHT_PRESET:-release}
scripts/build.sh "$preset" stagewright stagewright-planner stagewright-worker >&2
STAGEWRIGHT_BIN=$(bin_dir "$preset") STAGEWRIGHT_TEST_MODELS=$STAGEWRIGHT_ROOT/build/$preset/test_models \
  PYTHONPATH=$STAGEWRIGHT_ROOT/clients/python:$STAGEWRIGHT_ROOT/tests/integration OMP_NUM_THREADS=1 \
  "$VENV/bin/python" tests/fault/faults.py "$@"
