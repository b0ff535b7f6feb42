#!/usr/bin/env bash
# Builds a benchmark program of tests/bench in the release preset and runs it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

# The names given to stagewright_benchmark in the tree.
names() {
  local lists
  mapfile -t lists < <(find tests -name CMakeLists.txt)
  grep -hoE '^ *stagewright_benchmark\(NAME [a-z0-9_]+' "${lists[@]}" | sed 's/.* //' | sort
}

usage() {
  cat <<USAGE
usage: scripts/bench.sh NAME [ARGUMENT...]
       scripts/bench.sh all

Arguments go to the program (--help tells them). Benchmarks: $(names | tr '\n' ' ')
USAGE
}

case ${1:-} in
  '' | -h | --help) usage && exit 0 ;;
esac
name=$1
shift
if [[ $name == all ]]; then
  mapfile -t chosen < <(names)
elif names | grep -qx -- "$name"; then
  chosen=("$name")
else
  usage >&2
  die "no benchmark '$name'"
fi

targets=()
for name in "${chosen[@]}"; do targets+=("bench_$name"); done
scripts/build.sh release "${targets[@]}" >&2
for name in "${chosen[@]}"; do
  say "benchmark $name, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs), $(nproc) cores"
  "build/release/bench/$name" "$@"
done
