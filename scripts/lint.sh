#!/usr/bin/env bash
# The lints: the fast ones of tests/lint, then clang-tidy over the changed C++ files, or over all of them.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$STAGEWRIGHT_ROOT"

usage() {
  cat <<'USAGE'
usage: scripts/lint.sh [--all | FILE...] [--preset PRESET]

  (nothing)  clang-tidy over the C++ files changed since the main branch and not yet committed
  --all      clang-tidy over every C++ file that the preset builds (minutes)
  FILE...    clang-tidy over these files only
  --preset   whose compile_commands.json to use (default dev)
USAGE
}

preset=dev
all=0
files=()
while (($#)); do
  case $1 in
    --all) all=1 ;;
    --preset) preset=${2:?--preset needs a name} && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && die "unknown argument '$1'" ;;
    *) files+=("$1") ;;
  esac
  shift
done
need_preset "$preset"
commands=build/$preset/compile_commands.json
[[ -f $commands ]] || die "$commands not found: run scripts/build.sh $preset first"

python=$VENV/bin/python
failed=0
for check in tests/lint/check_*.py; do
  say "$(basename "$check" .py)"
  "$python" "$check" "$STAGEWRIGHT_ROOT" || failed=1
done

# Source files to look at, relative to the root. Headers are looked at through the files that include them.
changed_files() {
  local base=HEAD
  if git rev-parse --verify --quiet main >/dev/null; then base=$(git merge-base HEAD main); fi
  git diff --name-only --diff-filter=d "$base" -- '*.cc'
  git ls-files --others --exclude-standard -- '*.cc'
}
if ((all)); then
  mapfile -t files < <(git ls-files -- '*.cc')
elif ((!${#files[@]})); then
  mapfile -t files < <(changed_files | sort -u)
fi

# Only what the preset compiles has a command line to parse it with. Headers that GCC has precompiled are none that clang
# can read: the commands leave them out.
tidy=build/$preset/tidy
mkdir -p "$tidy"
mapfile -t files < <("$python" - "$commands" "$tidy" "${files[@]}" <<'PYTHON'
import json, os, re, sys
commands, tidy, *files = sys.argv[1:]
entries = json.load(open(commands))
for entry in entries:
  entry["command"] = re.sub(r" -fpch-preprocess| -Winvalid-pch| -include \S*cmake_pch\.hxx", "", entry["command"])
json.dump(entries, open(os.path.join(tidy, "compile_commands.json"), "w"))
built = {os.path.relpath(entry["file"]) for entry in entries}
print("\n".join(f for f in files if os.path.relpath(f) in built))
PYTHON
)
if [[ -z ${files[*]} ]]; then
  say "clang-tidy: nothing to look at"
else
  say "clang-tidy over ${#files[@]} files"
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(jobs_wanted)" clang-tidy -p "$tidy" --quiet 2> >(grep -v 'warnings generated' >&2) ||
    failed=1
fi
((!failed)) || die "the lints found something"
say "lint: clean, $SECONDS s"
