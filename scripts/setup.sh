#!/usr/bin/env bash
# Installs what building, testing and running Stagewright needs on Debian 12: the packages of apt-packages.txt that are
# missing, the virtual environment .venv of requirements.txt, NCCL where the CUDA toolkit is, and the Python client.
# Quick when there is nothing to do. Safe to run twice, and at the same time as itself.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

usage() {
  cat <<'USAGE'
usage: scripts/setup.sh [--no-apt] [--help]

  --no-apt   install no system package; say which are missing and carry on
USAGE
}

use_apt=1
for argument in "$@"; do
  case $argument in
    --no-apt) use_apt=0 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown argument '$argument'" ;;
  esac
done

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "not root and no sudo: as root, run: $*"
  fi
}

# The packages of apt-packages.txt that are not installed. kubectl is wanted from whatever source: it builds
# deploy/kubernetes in the tests.
missing_packages() {
  local wanted installed
  wanted=$(grep -v '^#' scripts/apt-packages.txt)
  # dpkg-query exits 1 when it does not know a package; what it prints is still right.
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null || true)
  comm -23 <(sort -u <<<"$wanted") <(sed -n 's/ installed$//p' <<<"$installed" | sort -u)
  command -v kubectl >/dev/null || echo kubernetes-client
}

install_packages() {
  command -v dpkg-query >/dev/null || die "this is not a Debian machine: install the likes of scripts/apt-packages.txt"
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  if [[ -z $missing ]]; then
    say "system packages: all there"
  elif ((!use_apt)); then
    say "system packages: missing, and not installed because of --no-apt: $missing"
  else
    say "system packages: installing $missing"
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
  fi
}

# Where the CUDA toolkit is, NCCL for it: the transport between GPUs is compiled and linked with it, also on a machine
# without a GPU (cmake/FindNCCL.cmake). A CUDA build of the torch wheel has brought it already.
install_nccl() {
  local toolkit=${CUDA_HOME:-/usr/local/cuda}
  [[ -f $toolkit/include/cuda_runtime_api.h ]] || return 0
  compgen -G "$VENV/lib/python3*/site-packages/nvidia/nccl/include/nccl.h" >/dev/null && return
  say "NCCL: installing scripts/requirements-cuda.txt (a wheel of 300 MB)"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -r scripts/requirements-cuda.txt ||
    say "NCCL: not installed; the transport between GPUs will not be built"
}

# The client in editable mode, and its protobuf code, made again when a .proto file changes.
install_python_client() {
  local client=clients/python want
  if [[ -f $client/pyproject.toml ]]; then
    want=$(hash_of $client/pyproject.toml)
    if [[ $(cat "$VENV/.client-stamp" 2>/dev/null) != "$want" ]]; then
      say "Python client: installing $client in editable mode"
      "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        -e "$client"
      echo "$want" >"$VENV/.client-stamp"
    fi
  fi
  if [[ -f $client/generate_protos.py ]]; then
    want=$(hash_of $client/generate_protos.py protos/stagewright/v1/*.proto)
    if [[ ! -d $client/stagewright/_proto || $(cat "$VENV/.protos-stamp" 2>/dev/null) != "$want" ]]; then
      say "Python client: generating its protobuf code"
      "$VENV/bin/python" "$client/generate_protos.py"
      echo "$want" >"$VENV/.protos-stamp"
    fi
  fi
}

# What the build will find; CMake decides (cmake/Accelerators.cmake), this only says it.
say_accelerator() {
  if compgen -G "$VENV/lib/python3*/site-packages/torch/lib/libtorch_cuda.so" >/dev/null; then
    say "accelerator: LibTorch has CUDA; the worker is built with it when the CUDA toolkit is found"
  else
    say "accelerator: none (LibTorch is a CPU build); the worker runs on the CPU"
  fi
}

exec 9>"${TMPDIR:-/tmp}/stagewright-setup-$(id -u).lock"
flock 9
install_packages
install_requirements .venv scripts/requirements.txt "the torch wheel is large"
install_nccl
install_python_client
say_accelerator
say "set-up done in $SECONDS s"
