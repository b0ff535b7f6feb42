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

# bin_dir PRESET: where that preset's programs land.
bin_dir() { echo "$STAGEWRIGHT_ROOT/build/$1/bin"; }

# need_preset NAME: dies unless CMakePresets.json has a visible configure preset of that name.
need_preset() {
  case $1 in
    dev | release | asan | tsan) ;;
    *) die "unknown preset '$1' (there are dev, release, asan and tsan)" ;;
  esac
}

# free_port: a TCP port on loopback that nothing listens on now.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for SECONDS COMMAND...: runs the command every 0.1 s until it succeeds; 1 when the time is over.
wait_for() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= deadline)); then return 1; fi
    sleep 0.1
  done
}

# Children started with run_in_background, ended by stop_children, newest first.
CHILDREN=()

# run_in_background LOG COMMAND...: starts the command with its output in LOG; its pid is then in LAST_CHILD.
run_in_background() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 &
  LAST_CHILD=$!
  CHILDREN+=("$LAST_CHILD")
}

# stop_children: SIGTERM to each child, newest first, then SIGKILL to what is left after 5 s. Call it from
# `trap stop_children EXIT` so that nothing is left behind, also after Ctrl-C.
stop_children() {
  local i pid
  for ((i = ${#CHILDREN[@]} - 1; i >= 0; --i)); do
    kill -TERM "${CHILDREN[i]}" 2>/dev/null || true
  done
  for pid in "${CHILDREN[@]:-}"; do
    [[ -n $pid ]] || continue
    for ((i = 0; i < 50; ++i)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  CHILDREN=()
}
