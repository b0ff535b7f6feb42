#!/usr/bin/env bash
# Starts stagewright-worker once for each GPU that the container sees, with the same flags; every process sees one GPU, or one
# MIG instance of it, as cuda:0. The one of GPU i has the name NAME-gpuI, metrics on port PORT+i and a folder of its own in
# --work-dir. Ends when the first of them ends, with its status, so that all are started again together.
set -euo pipefail

die() {
  echo "worker-per-gpu: $*" >&2
  exit 2
}

name=${HOSTNAME:-worker}
host=127.0.0.1 port=9071 work=.
flags=()
for argument in "$@"; do
  case $argument in
    --name=*) name=${argument#*=} ;;
    --metrics-listen=*) host=${argument#*=} port=${host##*:} host=${host%:*} ;;
    --work-dir=*) work=${argument#*=} ;;
    --devices | --devices=*) die "every worker has the devices cuda:0; leave $argument out" ;;
    --*=*) flags+=("$argument") ;;
    *) die "'$argument' is not --FLAG=VALUE" ;;
  esac
done

# A GPU that is cut by MIG is listed with its instances, which are what can be used of it.
listed=$(nvidia-smi -L) || die "nvidia-smi -L failed: $listed"
mapfile -t gpus < <(awk '
  match($0, /\(UUID: [^)]*\)/) {
    uuid = substr($0, RSTART + 7, RLENGTH - 8)
    if (uuid ~ /^MIG-/) { print uuid; whole = "" }
    else { if (whole != "") print whole; whole = uuid }
  }
  END { if (whole != "") print whole }' <<<"$listed")
((${#gpus[@]})) || die "no GPU: nvidia-smi -L lists '$listed'"

workers=()
trap 'kill "${workers[@]}" 2>/dev/null || true' EXIT TERM INT
for i in "${!gpus[@]}"; do
  mkdir -p "$work/gpu$i"
  CUDA_VISIBLE_DEVICES=${gpus[$i]} stagewright-worker "${flags[@]}" "--name=$name-gpu$i" --devices=cuda:0 \
    "--metrics-listen=$host:$((port + i))" "--work-dir=$work/gpu$i" &
  workers+=($!)
done
ended=0
wait -n "${workers[@]}" || ended=$?
kill "${workers[@]}" 2>/dev/null || true
wait "${workers[@]}" || true
exit "$ended"
