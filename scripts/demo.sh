#!/usr/bin/env bash
# Sets up, builds, and trains a four-branch network on handwritten digits: one planner and four workers as processes of
# their own, the plan beside the sequential one, and the checkpoint in plain PyTorch. Leaves no process behind.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

case ${1:-} in -h | --help) echo "usage: scripts/demo.sh [DIRECTORY]   (default: demo-output)" && exit 0 ;; esac
out=${1:-demo-output}

scripts/setup.sh
scripts/build.sh dev stagewright stagewright-planner stagewright-worker
rm -rf "$out"
exec "$(bin_dir dev)/stagewright" up --workers 4 --state "$out" -- "$VENV/bin/python" examples/digits "$out"
