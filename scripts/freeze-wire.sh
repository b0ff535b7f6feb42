#!/usr/bin/env bash
# Writes down the wire as it is released: scripts/freeze-wire.sh makes tests/lint/released_wire.binpb.gz anew of protos/. At
# a release, and never to silence lint_wire: from then on no message of that release may be misread.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

case ${1:-} in -h | --help) sed -n '2,3s/^# //p' "$0" && exit 0 ;; esac
[[ -x $VENV/bin/buf ]] || die "$VENV/bin/buf not found: run scripts/setup.sh"
"$VENV/bin/buf" build protos --exclude-source-info -o tests/lint/released_wire.binpb.gz
say "tests/lint/released_wire.binpb.gz: $(wc -c <tests/lint/released_wire.binpb.gz) bytes"
