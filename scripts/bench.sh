#!/usr/bin/env bash
# Builds benchmark programs of tests/bench in the release preset, runs them on one core and reports on stdout.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

# The programs NAME_bench of tests/bench.
programs() {
  grep -oE 'NAME [a-z0-9_]+_bench\b' tests/bench/CMakeLists.txt | sed 's/^NAME //; s/_bench$//' | sort
}

usage() {
  cat <<USAGE
usage: scripts/bench.sh NAME [ARGUMENT...]
       scripts/bench.sh all

  plan      search times of every planner, as one Markdown table
  shapes    search times and work of the default planner on problems of many shapes, as one Markdown table; minutes
  soon      when the default planner is within 1 % of what twelve times the effort finds, on the same problems; an hour, or
            --benchmark_filter=Soon/NAME
  growth    how search time grows with the model: fitted exponents, and docs/results/search-growth.svg
  figures   the counterparts of the papers' figures and tables, under docs/results, in less than ten minutes; with --long
            DRL-PP learns for longer, in half an hour
  run       step times of jobs on workers beside PyTorch's, as one Markdown table
  accuracy  predicted beside measured step times, before and after operators are profiled, as one Markdown table
  coverage  models of transformers, diffusers and others on workers, compared with PyTorch tensor by tensor; without
            arguments all of them, into docs/coverage.md. Results in build/coverage are kept: a run goes on where the last
            one ended
  large     a Llama of 70 billion parameters, captured without weights and planned for 64 devices

Any other name runs that program as it is; arguments go to the program (--help tells them).
Programs: $(programs | tr '\n' ' ')
USAGE
}

# run PROGRAM ARGUMENT...: the program, on one core where taskset can hold it there.
run() {
  local program=$1
  shift
  if command -v taskset >/dev/null; then
    taskset -c 0 "$(bin_dir release)/$program" "$@"
  else
    "$(bin_dir release)/$program" "$@"
  fi
}

# measure_plan FILTER ARGUMENT...: the JSON output of plan_bench in the file MEASURED.
measure_plan() {
  local filter=$1
  shift
  MEASURED=$(mktemp)
  trap 'rm -f "$MEASURED"' EXIT
  run plan_bench "--benchmark_filter=$filter" "--benchmark_out=$MEASURED" --benchmark_out_format=json "$@" >&2
}

report_plan() {
  scripts/build.sh release plan_bench >&2
  measure_plan '^Plan/' "$@"
  python3 tests/bench/plan_report.py table "$MEASURED"
}

report_shapes() {
  scripts/build.sh release plan_bench >&2
  measure_plan '^Shape/' "$@"
  python3 tests/bench/plan_report.py table "$MEASURED"
}

report_soon() {
  scripts/build.sh release plan_bench >&2
  measure_plan '^Soon/' "$@"
  python3 tests/bench/plan_report.py table "$MEASURED"
}

report_growth() {
  scripts/build.sh release plan_bench >&2
  measure_plan '^Growth/' "$@"
  mkdir -p docs/results
  python3 tests/bench/plan_report.py growth "$MEASURED" docs/results/search-growth.svg
}

# Every program figures_NAME_bench writes its own.
report_figures() {
  local name names
  local -a learning=()
  if [[ ${1:-} == --long ]]; then
    learning=(--long)
    shift
  fi
  mapfile -t names < <(programs | grep '^figures_')
  scripts/build.sh release "${names[@]/%/_bench}" >&2
  mkdir -p docs/results
  for name in "${names[@]}"; do
    say "$name"
    if [[ $name == figures_drl_pp ]]; then
      OMP_NUM_THREADS=1 run "${name}_bench" --out docs/results "${learning[@]}"
    else
      run "${name}_bench" --out docs/results "$@"
    fi
  done
}

# Jobs on real workers; all cores, since every stage has one.
report_run() {
  scripts/build.sh release stagewright stagewright-planner stagewright-worker >&2
  STAGEWRIGHT_BIN=$(bin_dir release) STAGEWRIGHT_TEST_MODELS='' PYTHONPATH=clients/python \
    "$VENV/bin/python" tests/bench/run/run_bench.py "$@"
}

# As report_run: jobs on real workers.
report_accuracy() {
  scripts/build.sh release stagewright stagewright-planner stagewright-worker >&2
  STAGEWRIGHT_BIN=$(bin_dir release) STAGEWRIGHT_TEST_MODELS='' PYTHONPATH=clients/python OMP_NUM_THREADS=1 \
    "$VENV/bin/python" tests/bench/accuracy/accuracy_bench.py "$@"
}

# The environment of the models' libraries: .venv's packages, and scripts/requirements-coverage.txt on top.
install_coverage() {
  local venv=$STAGEWRIGHT_ROOT/.venv-coverage want
  want=$(hash_of scripts/requirements.txt scripts/requirements-coverage.txt)
  [[ $(cat "$venv/.requirements-stamp" 2>/dev/null) == "$want" ]] && return
  say "Python environment .venv-coverage: installing scripts/requirements-coverage.txt"
  "$VENV/bin/python" -m venv --clear "$venv"
  "$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/stagewright-venv.pth"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r scripts/requirements-coverage.txt
  echo "$want" >"$venv/.requirements-stamp"
}

# Models that people bring, on workers; the rest of the machine stays usable.
report_coverage() {
  install_coverage
  scripts/build.sh release stagewright stagewright-planner stagewright-worker >&2
  (($# > 0)) || set -- --table docs/coverage.md
  STAGEWRIGHT_BIN=$(bin_dir release) STAGEWRIGHT_TEST_MODELS='' PYTHONPATH=clients/python OMP_NUM_THREADS=1 \
    .venv-coverage/bin/python -W ignore tests/bench/coverage/coverage_bench.py "$@"
}

report_large() {
  install_coverage
  scripts/build.sh release stagewright >&2
  STAGEWRIGHT_BIN=$(bin_dir release) HF_HUB_OFFLINE=1 PYTHONPATH=clients/python \
    .venv-coverage/bin/python -W ignore tests/bench/coverage/large_bench.py "$@"
}

report_program() {
  local name=$1
  shift
  scripts/build.sh release "${name}_bench" >&2
  "$(bin_dir release)/${name}_bench" "$@"
}

case ${1:-} in
  '' | -h | --help) usage && exit 0 ;;
esac
name=$1
shift
machine() {
  say "benchmark $name, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs), $(nproc) cores"
}
case $name in
  plan | shapes | soon | growth | figures | run | accuracy | coverage | large) machine && "report_$name" "$@" ;;
  all)
    machine
    for each in $(programs); do report_program "$each" "$@"; done
    ;;
  *)
    if ! programs | grep -qx -- "$name"; then
      usage >&2
      die "no benchmark '$name'"
    fi
    machine && report_program "$name" "$@"
    ;;
esac
