"""What the tests of deploy/ share: its files, read, and the programs they speak of."""

import json
import os
import pathlib
import re
import shlex
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# Each program and the source file that makes it.
PROGRAMS = {
    "stagewright": "clients/cli/main.cc",
    "stagewright-planner": "planner_service/main.cc",
    "stagewright-worker": "worker_daemon/main.cc",
}
# Scripts that hand their flags on, each with the program that it starts.
STARTERS = {"stagewright-worker-per-gpu": "stagewright-worker"}


def documents(folder="kubernetes"):
  """Every YAML document under deploy/FOLDER, with its path."""
  found = []
  for path in sorted((DEPLOY / folder).rglob("*.y*ml")):
    found += [(path.relative_to(ROOT), document) for document in yaml.safe_load_all(path.read_text())]
  return found


def workloads():
  """(program, document, container) for the planner Deployment and the worker DaemonSet of the base."""
  found = []
  for path, document in documents("kubernetes/base"):
    if document["kind"] in ("Deployment", "DaemonSet"):
      for container in document["spec"]["template"]["spec"]["containers"]:
        found.append((container["image"].split(":")[0], document, container))
  return found


def dockerfiles():
  return {path: Dockerfile(path) for path in sorted((DEPLOY / "docker").glob("*.Dockerfile"))}


class Dockerfile:
  """Instructions of a Dockerfile in order, as (keyword, words after it as one string)."""

  def __init__(self, path):
    self.path = path
    self.instructions = []
    text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE))
    for line in text.splitlines():
      if line.strip():
        keyword, _, rest = line.strip().partition(" ")
        self.instructions.append((keyword, re.sub(r"\s+", " ", rest.strip())))

  def all(self, keyword):
    return [rest for word, rest in self.instructions if word == keyword]

  def stages(self):
    """The instructions of each stage, keyed by its name, by its number where it has none."""
    stages = {}
    for keyword, rest in self.instructions:
      if keyword == "FROM":
        match = re.search(r" AS (\S+)$", rest)
        current = match.group(1) if match else str(len(stages))
        stages[current] = []
      if stages:
        stages[current].append((keyword, rest))
    return stages

  def final(self):
    return list(self.stages().values())[-1]

  def command(self):
    """ENTRYPOINT and CMD of the final stage, as one list of words."""
    words = []
    for keyword in ("ENTRYPOINT", "CMD"):
      words += json.loads([rest for word, rest in self.final() if word == keyword][-1])
    return words

  def start(self):
    """The program of ours that command() comes to run, and its flags as {name: value}."""
    first, *arguments = self.command()
    return STARTERS.get(first, first), parse_flags(arguments)

  def executables(self):
    """Names of what the final image has of ours in its PATH."""
    names = []
    for keyword, rest in self.final():
      *sources, to = rest.split()
      if keyword == "COPY" and to.startswith("/usr/local/bin/"):
        paths = [source for source in sources if not source.startswith("--")] if to.endswith("/") else [to]
        names += [path.rsplit("/", 1)[1] for path in paths]
    return names

  def programs(self):
    """The programs of ours that the final image holds."""
    words = [w for keyword, rest in self.final() if keyword == "COPY" for w in rest.split()]
    return [w.rsplit("/", 1)[1] for w in words if w.startswith("/src/build/")]

  def runtime_packages(self):
    """What the final stage installs with apt-get."""
    packages = set()
    for keyword, rest in self.final():
      if keyword == "RUN":
        for command in rest.split("&&"):
          words = shlex.split(command)
          if words[:2] == ["apt-get", "install"]:
            packages |= {w for w in words[2:] if not w.startswith("-")}
    return packages


def command_lines():
  """(where, program, flags as {name: value}) for every start of a program that deploy/ writes down."""
  lines = []
  for program, document, container in workloads():
    lines.append((f"{document['kind']} {document['metadata']['name']}", program, parse_flags(container["args"])))
  for path, dockerfile in dockerfiles().items():
    lines.append((path.name, *dockerfile.start()))
  return lines


def parse_flags(arguments):
  flags = {}
  pending = None
  for argument in arguments:
    if argument.startswith("--"):
      name, equals, value = argument.partition("=")
      flags[name] = value if equals else ""
      pending = None if equals else name
    elif pending:
      flags[pending] = argument
      pending = None
    else:
      raise ValueError(f"'{argument}' belongs to no flag")
  return flags


def program_path(program):
  """The built program, or None where its source is not in the tree or no build folder is named (STAGEWRIGHT_BIN)."""
  folder = os.environ.get("STAGEWRIGHT_BIN")
  if not folder or not (ROOT / PROGRAMS[program]).exists():
    return None
  return pathlib.Path(folder) / program


def help_text(program):
  """What `program --help` prints; None as for program_path. A program that is missing or fails is an error."""
  path = program_path(program)
  if path is None:
    return None
  return subprocess.run([path, "--help"], capture_output=True, text=True, check=True, timeout=120).stdout
