#!/usr/bin/env bash
# Proves the code for GPUs where there is one, in one command: scripts/gpu.sh prepare | there [--dry] (docs/gpu.md).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

usage() {
  cat <<'USAGE'
usage: scripts/gpu.sh prepare [--no-build] | there [--dry] [ARGUMENT...]

  prepare      where there is a network: build preset cuda, pack it and all that it takes into .gpu (at most 55 MB)
  --no-build   pack what is built
  there        where there is a GPU: unpack .gpu and prove; what came of it is in $OUT, or build/gpu
  --dry        without a GPU: run all of it on the CPU with small models, and say what that leaves open
  ARGUMENT     of scripts/gpu/there.py: --only PART, --seconds N, --out FOLDER
USAGE
}

case ${1:-} in
  prepare)
    if [[ ${2:-} != --no-build ]]; then
      # One name a line.
      mapfile -t targets < <(python3 -c 'import sys; sys.path.insert(0, "scripts/gpu"); import parts
print(*parts.PROGRAMS, *parts.SUITES, sep="\n")')
      scripts/build.sh cuda "${targets[@]}"
    fi
    exec "$VENV/bin/python" scripts/gpu/prepare.py
    ;;
  there)
    shift
    python=python3
    # Where the programs were built, the Python beside the LibTorch that they were built against.
    if [[ -x .venv-cuda/bin/python3 ]]; then python=.venv-cuda/bin/python3; fi
    PYTHONUNBUFFERED=1 exec "$python" scripts/gpu/there.py "$@"
    ;;
  -h | --help) usage ;;
  *) usage >&2 && die "unknown argument '${1:-}'" ;;
esac
