#!/usr/bin/env bash
# Builds a benchmark program of tests/bench in the release preset and runs it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

# The programs NAME_bench of tests/bench.
names() {
  grep -oE 'NAME [a-z0-9_]+_bench\b' tests/bench/CMakeLists.txt | sed 's/^NAME //; s/_bench$//' | sort
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
for name in "${chosen[@]}"; do targets+=("${name}_bench"); done
scripts/build.sh release "${targets[@]}" >&2
for name in "${chosen[@]}"; do
  say "benchmark $name, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs), $(nproc) cores"
  "$(bin_dir release)/${name}_bench" "$@"
done
