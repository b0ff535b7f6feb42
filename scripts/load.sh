#!/usr/bin/env bash
# Measures a planner under load, in the release preset; a line for docs/benchmarks.md each. Minutes on an idle machine.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

usage() {
  cat <<USAGE
usage: scripts/load.sh plans [CALLS [CALLERS]]        default: 2000 8; plans that are known, beside a bare gRPC server
       scripts/load.sh workers [WORKERS [SECONDS]]    default: 1000 30; workers with a heartbeat each second
       scripts/load.sh watchers [WATCHERS [CALLS]]    default: 3000 500; watchers of a job, a third of whom never read
       scripts/load.sh submits [SUBMITS [PLANS]]      default: 200 64; submits at once while plans are searched
       scripts/load.sh all                            all of them
USAGE
}

case ${1:-} in
  plans | workers | watchers | submits) what=("$1") && shift ;;
  all) what=(plans workers watchers submits) && shift ;;
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
scripts/build.sh "$preset" stagewright-planner stagewright-worker rpc_rate >&2
export PYTHONPATH=$STAGEWRIGHT_ROOT/clients/python:$STAGEWRIGHT_ROOT/tests/security OMP_NUM_THREADS=1
export STAGEWRIGHT_BIN STAGEWRIGHT_TEST_MODELS=$STAGEWRIGHT_ROOT/build/$preset/test_models
STAGEWRIGHT_BIN=$(bin_dir "$preset")
make_test_models "$STAGEWRIGHT_TEST_MODELS"
declare -A programs=([plans]=plan_rate [workers]=many_workers [watchers]=many_watchers [submits]=many_submits)
for each in "${what[@]}"; do
  say "$each"
  "$VENV/bin/python" "tests/load/${programs[$each]}.py" "$@"
done
