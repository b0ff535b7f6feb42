#!/usr/bin/env bash
# Keeps a stagewright-worker for each GPU that the container sees, all with the same flags; every process sees one GPU, or one
# MIG instance of it, as cuda:0. The one of GPU i has the name NAME-gpuI, metrics on port PORT+i and a folder of its own in
# --work-dir. A worker that fails is started again after a pause, and the others work on; one that ends with status 0 was told
# to, and stays so. SIGTERM and SIGINT are passed on. The status is 0, or that of a worker if none can be kept.
set -euo pipefail
# Each worker is a process group of its own: Ctrl-C in a terminal reaches it once, through this script.
set -m

say() {
  echo "worker-per-gpu: $*" >&2
}

die() {
  say "$@"
  exit 2
}

leaving=0
pass() { # SIGNAL
  leaving=1
  local worker
  for worker in $(jobs -pr); do
    kill "-$1" -- "-$worker" 2>/dev/null || true
  done
}
trap 'pass TERM' TERM
trap 'pass INT' INT

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

for i in "${!gpus[@]}"; do
  mkdir -p "$work/gpu$i"
done

# A worker that ran for so many seconds had a good start. So many bad ones in a row, of every worker, and there is no hope
# when none of them runs.
steady=60
too_many=4

declare -A gpu_of=() # The process of a worker, or of the pause before it: index of its GPU.
began=()             # By GPU: the second in which its worker was started, or will be.
bad_starts=()        # By GPU: how many there were in a row.

start() { # GPU PAUSE
  began[$1]=$((SECONDS + $2))
  {
    # A signal before the fork is seen here; one after it finds this process among the jobs.
    ((!leaving)) || exit 0
    export CUDA_VISIBLE_DEVICES=${gpus[$1]}
    sleep "$2"
    exec stagewright-worker "${flags[@]}" "--name=$name-gpu$1" --devices=cuda:0 \
      "--metrics-listen=$host:$((port + $1))" "--work-dir=$work/gpu$1"
  } &
  gpu_of[$!]=$1
}

is_steady() { # GPU
  ((SECONDS - began[$1] >= steady))
}

hopeless() { # Of all but the one that has just ended.
  local i
  for i in "${gpu_of[@]}"; do
    if ((bad_starts[i] < too_many || began[i] <= SECONDS)); then return 1; fi
  done
}

for i in "${!gpus[@]}"; do
  start "$i" 0
done
status=0
while ((${#gpu_of[@]})); do
  status=0
  wait -n -p ended "${!gpu_of[@]}" || status=$?
  if ((leaving)); then
    status=0
    break
  fi
  i=${gpu_of[$ended]}
  unset "gpu_of[$ended]"
  what="the worker of GPU $i (${gpus[$i]}) ended with status $status"
  if ((status == 0)); then
    say "$what, as it was told to: it is not started again"
    continue
  fi
  if is_steady "$i"; then bad_starts[i]=0; fi
  bad_starts[i]=$((bad_starts[i] + 1))
  if ((bad_starts[i] >= too_many)) && hopeless; then
    say "$what: no worker can be kept"
    pass TERM
    break
  fi
  pause=$((bad_starts[i] < 7 ? 1 << (bad_starts[i] - 1) : 60))
  say "$what: it is started again in $pause s"
  start "$i" "$pause"
done
# A signal interrupts the wait.
until wait; do :; done
exit "$status"
