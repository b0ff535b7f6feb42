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

# install_requirements ENVIRONMENT FILE WORDS: what the file names, in a virtual environment of the tree; quick when it is
# there. WORDS say what takes long.
install_requirements() {
  local environment=$STAGEWRIGHT_ROOT/$1 want
  want=$(cd "$STAGEWRIGHT_ROOT" && hash_of "$2")
  if [[ -x $environment/bin/python && $(cat "$environment/.requirements-stamp" 2>/dev/null) == "$want" ]]; then
    say "Python environment $1: up to date"
    return
  fi
  say "Python environment $1: installing $2 ($3)"
  [[ -x $environment/bin/python ]] || python3 -m venv "$environment"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -r "$STAGEWRIGHT_ROOT/$2"
  echo "$want" >"$environment/.requirements-stamp"
}

# bin_dir PRESET: where that preset's programs land.
bin_dir() { echo "$STAGEWRIGHT_ROOT/build/$1/bin"; }

# make_test_models FOLDER: the models that tests train, unless they are there.
make_test_models() {
  [[ -d $1 ]] || PYTHONPATH=$STAGEWRIGHT_ROOT/clients/python "$VENV/bin/python" "$STAGEWRIGHT_ROOT/tests/data/export_models.py" "$1" >&2
}

# need_preset NAME: dies unless CMakePresets.json has a visible configure preset of that name.
need_preset() {
  case $1 in
    dev | release | cuda | asan | tsan) ;;
    *) die "unknown preset '$1' (there are dev, release, cuda, asan and tsan)" ;;
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

# unsteady_tests LOG: the entries that CTest's log says both failed and passed, one a line.
unsteady_tests() {
  awk '
    /^[0-9]+\/[0-9]+ Test: / { entry = $3 }
    /^Test Failed\.$/ { failed[entry] = 1 }
    /^Test Passed\.$/ && entry in failed { print entry }
  ' "$1"
}
