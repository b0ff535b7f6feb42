#!/usr/bin/env bash
# Writes golden tables anew, in the long form: scripts/golden.sh [TABLE...]. Tables are those of tests/golden/plans, by
# default all: examples, profiles, programs, random. What changes is for git diff to show.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

case ${1:-} in -h | --help) sed -n '2,3s/^# //p' "$0" && exit 0 ;; esac
scripts/build.sh dev golden_plans >&2
say "asking every planner; takes minutes"
exec build/dev/tests/golden_plans --write --long "$@"
