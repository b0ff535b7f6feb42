#!/usr/bin/env bash
# Configures and builds: scripts/build.sh [PRESET] [TARGET...]. PRESET is dev (default), release, cuda, asan or tsan;
# without targets everything is built. Programs land in build/PRESET/bin. cuda installs its LibTorch, of several GB, first.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

case ${1:-} in -h | --help) sed -n '2,3s/^# //p' "$0" && exit 0 ;; esac
preset=${1:-dev}
shift || true
need_preset "$preset"
if [[ $preset == cuda ]]; then
  install_requirements .venv-cuda scripts/requirements-cuda-torch.txt "a CUDA build of torch, several GB"
fi

# Paths relative to the tree let checkouts share one ccache.
export CCACHE_BASEDIR=$STAGEWRIGHT_ROOT CCACHE_NOHASHDIR=1
log=$STAGEWRIGHT_ROOT/build/configure-$preset.log
mkdir -p build
cmake --preset "$preset" >"$log" 2>&1 || {
  cat "$log" >&2
  die "configuring preset $preset failed"
}
grep -E '^-- Stagewright:' "$log" >&2 || true
say "building preset $preset${*:+ (}${*}${*:+)}"
cmake --build --preset "$preset" --parallel "$(jobs_wanted)" ${1:+--target "$@"}
