# shellcheck shell=bash
# What the scripts share; to be sourced by a script that has said `set -euo pipefail`. Sets STAGEWRIGHT_ROOT and VENV.

STAGEWRIGHT_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Read by the scripts that source this file.
# shellcheck disable=SC2034
VENV=$STAGEWRIGHT_ROOT/.venv

# say WORDS...: one line of progress, on stderr so that a script's output stays its own.
say() { printf '==> %s\n' "$*" >&2; }

# die WORDS...: one clear message and exit 1.
die() {
  printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# jobs_wanted: how many compilers or tests run at once; STAGEWRIGHT_JOBS overrides the number of cores.
jobs_wanted() { echo "${STAGEWRIGHT_JOBS:-$(nproc)}"; }

# hash_of FILE...: one hash over the contents and names of the files that exist.
hash_of() {
  local file
  for file in "$@"; do
    if [[ -f $file ]]; then sha256sum "$file"; fi
  done | sha256sum | cut -d' ' -f1
}

# bin_dir PRESET: where that preset's programs land.
bin_dir() { echo "$STAGEWRIGHT_ROOT/build/$1/bin"; }

# need_preset NAME: dies unless CMakePresets.json has a visible configure preset of that name.
need_preset() {
  case $1 in
    dev | release | asan | tsan) ;;
    *) die "unknown preset '$1' (there are dev, release, asan and tsan)" ;;
  esac
}

# skipped_tests LOG: a line "ENTRY: CASE: reason" for each case that CTest's log says was skipped, by GoogleTest, unittest,
# pytest (with -rs) or golden_plans.
skipped_tests() {
  awk '
    /^[0-9]+\/[0-9]+ Test: / { entry = $3 }
    /: Skipped$/ { getline reason; next }
    /^\[  SKIPPED \] .* \([0-9]+ ms\)$/ { print entry ": " $4 ": " reason }
    /^SKIPPED \[[0-9]+\] / || / \.\.\. skipped / || /^no profiles in / { print entry ": " $0 }
  ' "$1"
}
