#!/usr/bin/env bash
# Sets up, builds and tests in one command, and ends with CTest's summary and what was skipped and why.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

usage() {
  cat <<'USAGE'
usage: scripts/test.sh [PRESET] [--quick | --long] [-- CTEST_ARGUMENT...]

  PRESET    dev (default), release, cuda, asan or tsan
  --quick   leave out the suites labelled slow
  --long    run the suites labelled long (soak, large properties), too
  --        what follows goes to ctest: -R graph, -L lint, --rerun-failed, ...
USAGE
}

preset=dev
exclude='^long$'
while (($#)); do
  case $1 in
    --quick) exclude='^(slow|long)$' ;;
    --long) exclude='' ;;
    -h | --help) usage && exit 0 ;;
    --) shift && break ;;
    -*) usage >&2 && die "unknown argument '$1'" ;;
    *) preset=$1 ;;
  esac
  shift
done
need_preset "$preset"

scripts/setup.sh
scripts/build.sh "$preset"
say "set-up and build took $SECONDS s; testing preset $preset"
ended=0
# Suites of whole systems also wait (tests/README.md): one test more than there are cores.
PYTEST_ADDOPTS="-rs ${PYTEST_ADDOPTS:-}" ctest --preset "$preset" --parallel $(($(jobs_wanted) + 1)) \
  ${exclude:+--label-exclude "$exclude"} --no-tests=error "$@" || ended=$?
unsteady=$(unsteady_tests "build/$preset/Testing/Temporary/LastTest.log")
if [[ -n $unsteady ]]; then
  say "failed, and passed when run again: a defect of the test or of what it tests; the log above has why:"
  echo "$unsteady"
fi
skipped=$(skipped_tests "build/$preset/Testing/Temporary/LastTest.log")
if [[ -n $skipped ]]; then
  say "skipped, each with the reason:"
  echo "$skipped"
fi
exit "$ended"
