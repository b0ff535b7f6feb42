#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz with Clang and libFuzzer and runs them one after the other.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

usage() {
  cat <<'USAGE'
usage: scripts/fuzz.sh [SECONDS] [TARGET...]

  SECONDS  how long each target runs (default 20)
  TARGET   artifact_manifest, cluster, config, graph_file, import_dapple, import_pipedream, import_piper, jwt, manual, npy,
           plan, safetensors, strategy, token_table (default: all of these), or rpc alone: messages of every RPC for a
           planner of preset dev; or operators alone: 250 calls of each operator that graphs may name (minutes)

Needs Clang with its sanitizer runtimes (Debian: clang-14, libclang-rt-14-dev); CLANG names another clang++. What a
target finds is left in build/fuzz/findings, what it learned in build/fuzz/corpus. With STAGEWRIGHT_FUZZ_PLANNERS=NAME,...
the target plan keeps to these planners.
USAGE
}

seconds=20
if [[ ${1:-} == -h || ${1:-} == --help ]]; then usage && exit 0; fi
if [[ ${1:-} =~ ^[0-9]+$ ]]; then seconds=$1 && shift; fi
targets=("$@")
((${#targets[@]})) || targets=(import_pipedream import_dapple import_piper cluster graph_file jwt manual strategy plan
  token_table config safetensors npy artifact_manifest)

if [[ ${targets[*]} == rpc ]]; then
  scripts/build.sh dev stagewright-planner >&2
  STAGEWRIGHT_BIN=$(bin_dir dev) PYTHONPATH=clients/python:tests/security exec "$VENV/bin/python" tests/fuzz/rpc_fuzz.py "$seconds"
fi

if [[ ${targets[*]} == operators ]]; then
  scripts/build.sh dev torch_operator_attacks_test >&2
  STAGEWRIGHT_ATTACKS=250 exec build/dev/tests/torch_operator_attacks_test
fi

# Paths relative to the tree let checkouts share one ccache.
export CCACHE_BASEDIR=$STAGEWRIGHT_ROOT
clang=${CLANG:-$(command -v clang++-14 || command -v clang++ || true)}
[[ -n $clang ]] || die "no clang++ found: install it, or name it in CLANG"
compgen -G "$("$clang" -print-resource-dir)/lib/linux/libclang_rt.fuzzer-*" >/dev/null ||
  die "$clang has no runtime of libFuzzer: install it (Debian: libclang-rt-14-dev)"
build=build/fuzz
say "building with $clang"
if [[ ! -f $build/build.ninja ]]; then
  cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$clang" -DSTAGEWRIGHT_FUZZ=ON -DSTAGEWRIGHT_WITH_WORKER=OFF \
    -DSTAGEWRIGHT_WERROR=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" >"$build.log" 2>&1 ||
    die "cmake failed: see $build.log"
fi
ninja -C "$build" -j "$(jobs_wanted)" "${targets[@]/%/_fuzz}"

mkdir -p "$build/findings"
failed=0
for target in "${targets[@]}"; do
  say "$target for $seconds s"
  mkdir -p "$build/corpus/$target"
  "$build/bin/${target}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$target-" "$build/corpus/$target" "tests/fuzz/corpus/$target" \
    >"$build/$target.log" 2>&1 || failed=1
  grep -E "SUMMARY|finding:|stat::number_of_executed_units" "$build/$target.log" || true
done
((failed == 0)) || die "findings: see $build/findings and the logs beside it"
