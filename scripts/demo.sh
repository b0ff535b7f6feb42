#!/usr/bin/env bash
# Sets up, builds, and trains a four-branch network on handwritten digits: one planner and four workers as processes of
# their own, the plan beside the sequential one, and the checkpoint in plain PyTorch. Leaves no process behind.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

case ${1:-} in -h | --help) echo "usage: scripts/demo.sh [DIRECTORY]   (default: demo-output)" && exit 0 ;; esac
out=${1:-demo-output}
mini_batch=64
epochs=20
learning_rate=0.0003

scripts/setup.sh
scripts/build.sh dev stagewright stagewright-planner stagewright-worker
bin=$(bin_dir dev)
python=$VENV/bin/python

trap stop_children EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
rm -rf "$out"
mkdir -p "$out"

say "capturing examples/digits/model.py with torch.export"
"$python" examples/digits/export.py "$out"

port=$(free_port)
export STAGEWRIGHT_PLANNER=127.0.0.1:$port
say "starting a planner on $STAGEWRIGHT_PLANNER and four workers"
run_in_background "$out/planner.log" \
  "$bin/stagewright-planner" --listen "$STAGEWRIGHT_PLANNER" --metrics-listen 127.0.0.1:0 --state "$out/state.db"
for i in 0 1 2 3; do
  run_in_background "$out/worker$i.log" "$bin/stagewright-worker" --planner "$STAGEWRIGHT_PLANNER" --name "worker$i"
done
four_workers() { [[ $("$bin/stagewright" workers -o json | grep -c '"last_heartbeat"') == 4 ]]; }
wait_for 30 four_workers || die "the workers did not register; see $out/*.log"
"$bin/stagewright" workers

say "planning and training: $epochs epochs, mini-batches of $mini_batch"
"$bin/stagewright" submit "$out/digits.swg" --weights "$out/digits.safetensors" --data "$out/train.safetensors" \
  --eval-data "$out/test.safetensors" --out "$out" --mini-batch "$mini_batch" --epochs "$epochs" --optimizer adam \
  --lr "$learning_rate" --watch >"$out/summary.txt" || {
  cat "$out/summary.txt" >&2
  die "the job did not succeed; see $out/*.log"
}

say "the plan"
"$bin/stagewright" plan show jobs/1
"$bin/stagewright" trace jobs/1 --file "$out/trace.json" >/dev/null

say "the result"
cat "$out/summary.txt"
printf '  trace            %s (open in https://ui.perfetto.dev)\n' "$out/trace.json"

say "the checkpoint in plain PyTorch"
"$python" examples/digits/evaluate.py "$out/model.safetensors" "$out/test.safetensors" | tee "$out/pytorch.txt"
ours=$(sed -n 's/.*test accuracy *\([0-9.]*\) %.*/\1/p' "$out/summary.txt")
theirs=$(sed -n 's/accuracy \([0-9.]*\).*/\1/p' "$out/pytorch.txt")
awk -v ours="$ours" -v theirs="$theirs" 'BEGIN {
  if (ours - theirs * 100 > 0.011 || theirs * 100 - ours > 0.011) {
    print "error: Stagewright measured " ours " %, PyTorch " theirs * 100 " %"; exit 1
  }
  if (ours < 96) { print "error: the accuracy is below 96 %"; exit 1 }
}' >&2
say "the same accuracy as Stagewright measured, $ours %"
