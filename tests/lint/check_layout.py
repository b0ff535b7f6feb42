"""The shape of the tree: a README per folder that is true of it, small files, tests that mirror sources, nothing of one
machine."""

import fnmatch
import pathlib
import re

import tree

MAIN_FOLDERS = ["clients", "common", "deploy", "examples", "planner_service", "protos", "scripts", "tests",
                "worker_daemon"]
COMPONENT_PARENTS = ["clients", "common", "planner_service", "worker_daemon"]
MIRRORED = ["clients/cli", "common", "planner_service", "worker_daemon"]
CODE = [".h", ".cc", ".cu", ".py", ".sh", ".proto", ".cmake", ".ts"]
TEXT = CODE + [".md", ".txt", ".yaml", ".yml", ".json", ".toml", "Dockerfile"]
# Which tests cover the sources that have none of their name.
COVERED_BY = "tests/covered_by.txt"
MAX_LINES = 600
MAX_README_LINES = 15
# A header as a README names it: `dag.h`, or with its path.
NAMED_SOURCE = re.compile(r"`((?:[\w-]+/)*[\w-]+\.(?:h|cc))`")
# This folder names what it forbids.
EXEMPT = "tests/lint/"

MACHINE = re.compile(r"(?<![\w.$}~-])/(work|root|home/\w+|Users/\w+|tmp/sw)(?=[/\s\"'`:;,)]|$)", re.MULTILINE)
HOSTS = re.compile(r"\b(files\.pythonhosted\.org|pypi\.org|registry\.npmjs\.org|deb\.debian\.org|"
                   r"download\.pytorch\.org)\b")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def check_readmes(sources):
  folders = {f for f in MAIN_FOLDERS if any(p.startswith(f + "/") for p in sources.paths)}
  for path in sources.matching([".py"]):
    parts = path.split("/")
    if parts[0] in COMPONENT_PARENTS and len(parts) > 2:
      folders.add("/".join(parts[:2]))
  findings = []
  for folder in sorted(folders):
    readme = f"{folder}/README.md"
    if readme not in sources.paths:
      findings.append(f"{readme}: missing: ten lines that tell the folder's story")
    elif len([line for line in sources.text(readme).splitlines() if line.strip()]) < 3:
      findings.append(f"{readme}: says too little")
  return findings


def check_rooms(sources):
  """A README for each folder of C++: short, naming each of its headers and no file that is not there."""
  headers = {}
  for path in sources.matching([".h"]):
    if path.startswith(tuple(f"{parent}/" for parent in COMPONENT_PARENTS)):
      headers.setdefault(path.rsplit("/", 1)[0], []).append(path.rsplit("/", 1)[1])
  findings = []
  for folder in sorted(headers):
    readme = f"{folder}/README.md"
    if readme not in sources.paths:
      findings.append(f"{readme}: missing: what the folder is for and what its headers are")
      continue
    text = sources.text(readme)
    lines = len([line for line in text.splitlines() if line.strip()])
    if lines > MAX_README_LINES:
      findings.append(f"{readme}: {lines} lines, more than {MAX_README_LINES}")
    for header in sorted(headers[folder]):
      stem = header.removesuffix(".h")
      if not re.search(rf"(?<![\w]){re.escape(stem)}(?![\w])", text):
        findings.append(f"{readme}: does not name {header}")
    for name in sorted(set(NAMED_SOURCE.findall(text))):
      if f"{folder}/{name}" not in sources.paths and name not in sources.paths:
        findings.append(f"{readme}: names {name}, which is not there")
  return findings


def check_sizes(sources):
  findings = []
  for path in sources.matching(CODE):
    lines = sources.text(path).count("\n")
    if lines > MAX_LINES:
      findings.append(f"{path}: {lines} lines, more than {MAX_LINES}: one concept per file")
  return findings


def mirrored_source(sources, test):
  """Whether tests/DIR/NAME_test.cc is about a source: DIR/N.h or .cc, where NAME is N or begins with it (lower_property
  for lower), or about the whole folder (executor_replay in executor/)."""
  path = pathlib.PurePosixPath(test)
  folder = pathlib.PurePosixPath(*path.parts[1:-1])
  words = path.name.removesuffix("_test.cc").split("_")
  for count in range(len(words), 0, -1):
    name = "_".join(words[:count])
    if name == folder.name or any(f"{folder}/{name}{suffix}" in sources.paths for suffix in (".h", ".cc")):
      return True
  return False


def check_mirror(sources):
  findings = []
  for path in sources.matching(["_test.cc"]):
    if not path.startswith("tests/"):
      findings.append(f"{path}: tests live under tests/")
    elif path.startswith(tuple(f"tests/{folder}/" for folder in MIRRORED)) and not mirrored_source(sources, path):
      expected = path.removeprefix("tests/").removesuffix("_test.cc")
      findings.append(f"{path}: mirrors no source: there is no {expected}.h or .cc")
  return findings


def sources_without_tests(sources):
  """The sources DIR/NAME.cc that neither tests/DIR/NAME_test.cc nor tests/DIR/NAME_*_test.cc is named after."""
  tests = set(sources.matching(["_test.cc"], "tests/"))
  found = []
  for path in sources.matching([".cc"]):
    folder, name = path.rpartition("/")[::2]
    if path.startswith(tuple(f"{parent}/" for parent in MIRRORED)) and name != "main.cc":
      stem = f"tests/{folder}/{name.removesuffix('.cc')}"
      if f"{stem}_test.cc" not in tests and not any(test.startswith(f"{stem}_") for test in tests):
        found.append(path)
  return found


def matches(path, pattern):
  """A glob whose * ends at a slash."""
  return path.count("/") == pattern.count("/") and all(map(fnmatch.fnmatchcase, path.split("/"), pattern.split("/")))


def check_covered(sources):
  lines = sources.text(COVERED_BY).splitlines() if COVERED_BY in sources.paths else ["#"]
  findings = []
  if not lines or not lines[0].startswith("#"):
    findings.append(f"{COVERED_BY}:1: does not begin with a comment that says what it is")
  rows = [(number, line) for number, line in enumerate(lines, 1) if not line.startswith("#")]
  for (_, before), (number, line) in zip(rows, rows[1:]):
    if line <= before:
      findings.append(f"{COVERED_BY}:{number}: is not sorted")
  left = sources_without_tests(sources)
  covered = set()
  for number, line in rows:
    words = line.split()
    if len(words) != 2:
      findings.append(f"{COVERED_BY}:{number}: is not a source and a test")
      continue
    pattern, test = words
    if test not in sources.paths:
      findings.append(f"{COVERED_BY}:{number}: there is no {test}")
    here = [path for path in left if matches(path, pattern)]
    if not here:
      findings.append(f"{COVERED_BY}:{number}: no source without a test of its own matches {pattern}")
    covered.update(here)
  for path in left:
    if path not in covered:
      findings.append(f"{path}: no test is named after it, and {COVERED_BY} does not name one that covers it")
  return findings


def check_text(sources):
  findings = []
  for path in sources.matching(TEXT):
    if path.startswith(EXEMPT):
      continue
    text = sources.text(path)
    for pattern, what in [(MACHINE, "a path of one machine"), (HOSTS, "a registry host"),
                          (UNFINISHED, "unfinished work")]:
      for match in pattern.finditer(text):
        findings.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {what}: {match.group(0)}")
    if text and not text.endswith("\n"):
      findings.append(f"{path}: does not end with a newline")
    for number, line in enumerate(text.split("\n"), 1):
      if line != line.rstrip():
        findings.append(f"{path}:{number}: trailing white space")
  return findings


def check(sources):
  return [finding for one in (check_readmes, check_rooms, check_sizes, check_mirror, check_covered, check_text)
          for finding in one(sources)]


if __name__ == "__main__":
  tree.main(check)
