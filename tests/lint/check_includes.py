"""Who may include whom: the dependency rules of docs/architecture.md, read off the #include lines."""

import re

import tree

# Each component and what it may include directly; what those may include is allowed, too.
MAY_INCLUDE = {
    "common/base": [],
    "common/clock": [],
    "common/log": ["common/base"],
    "common/config": ["common/base"],
    "common/graph": ["common/base"],
    "common/rewrite": ["common/graph"],
    "common/data": ["common/graph"],
    "common/topology": ["common/base"],
    "common/training": ["common/graph"],
    "common/cost": ["common/training", "common/topology"],
    "common/strategy": ["common/graph", "common/topology", "common/training"],
    "common/program": ["common/graph"],
    "common/policies": ["common/strategy"],
    "common/memory": ["common/program", "common/cost"],
    "common/lowering": ["common/memory", "common/strategy"],
    "common/validation": ["common/program"],
    "common/plan": ["common/strategy", "common/validation", "common/training"],
    "common/channel": ["common/log"],
    "common/artifacts": ["common/data"],
    "common/wire": ["common/log", "common/plan", "common/training", "common/rewrite", "common/cost"],
    "planner_service/simulator": ["common/memory", "common/plan"],
    "planner_service/evaluator": ["planner_service/simulator", "common/lowering"],
    "planner_service/planner": ["planner_service/evaluator", "common/rewrite"],
    "planner_service/models": ["planner_service/planner"],
    "planner_service/search": ["planner_service/models"],
    "planner_service/planners": ["planner_service/search", "common/policies"],
    "planner_service/front_door": ["planner_service/planners"],
    "planner_service/importers": ["common/plan"],
    "planner_service/wire": ["common/artifacts", "common/wire", "planner_service/front_door"],
    "planner_service/store": ["common/base", "common/clock"],
    "planner_service/access": ["common/log"],
    "planner_service/intake": ["common/wire"],
    "planner_service/store/etcd": ["planner_service/store"],
    "planner_service/registry": ["common/clock", "common/wire", "planner_service/store"],
    "planner_service/links": ["planner_service/registry"],
    "planner_service/profiles": ["planner_service/registry"],
    "planner_service/drift": ["planner_service/front_door"],
    "planner_service/jobs": ["common/artifacts", "common/log", "planner_service/wire", "planner_service/registry", "planner_service/profiles",
                             "planner_service/drift"],
    "planner_service/runs": ["planner_service/jobs"],
    "planner_service/queue": ["common/base"],
    "planner_service/growth": ["common/base"],
    "planner_service/records": ["planner_service/runs", "planner_service/growth"],
    "planner_service/lifecycle": ["planner_service/records", "planner_service/queue"],
    "planner_service/service": ["planner_service/lifecycle", "planner_service/links", "planner_service/importers",
                                "planner_service/access", "planner_service/intake", "common/channel"],
    "planner_service/state": ["planner_service/jobs"],
    "planner_service/election": ["planner_service/service", "planner_service/store/etcd"],
    "planner_service/main.cc": ["planner_service/election", "planner_service/state", "common/config", "common/log"],
    "worker_daemon/cuda": [],
    "worker_daemon/transport": ["common/base", "common/clock"],
    "worker_daemon/transport/local": ["worker_daemon/transport"],
    "worker_daemon/transport/proof": ["worker_daemon/transport"],
    "worker_daemon/transport/ucx": ["worker_daemon/transport/proof", "common/log"],
    "worker_daemon/transport/arranged": ["worker_daemon/transport"],
    "worker_daemon/transport/routing": ["worker_daemon/transport/local", "worker_daemon/transport/ucx",
                                        "worker_daemon/transport/arranged"],
    "worker_daemon/transport/nccl": ["worker_daemon/transport/routing", "worker_daemon/cuda"],
    "worker_daemon/links": ["worker_daemon/transport"],
    "worker_daemon/data": ["common/data"],
    "worker_daemon/checkpoint": ["worker_daemon/data", "common/program"],
    "worker_daemon/torch": ["common/program", "common/data", "common/training", "worker_daemon/cuda"],
    "worker_daemon/device": ["worker_daemon/torch", "worker_daemon/cuda", "common/cost"],
    "worker_daemon/stage": ["worker_daemon/torch", "common/memory"],
    "worker_daemon/profiler": ["worker_daemon/stage", "worker_daemon/device"],
    "worker_daemon/update": ["worker_daemon/stage", "worker_daemon/device", "worker_daemon/checkpoint",
                             "worker_daemon/transport"],
    "worker_daemon/step": ["common/clock", "worker_daemon/checkpoint"],
    "worker_daemon/messages": ["worker_daemon/step", "worker_daemon/device", "worker_daemon/transport", "common/memory"],
    "worker_daemon/effects": ["worker_daemon/messages", "worker_daemon/update"],
    "worker_daemon/executor": ["worker_daemon/effects", "worker_daemon/transport/routing", "common/validation"],
    "worker_daemon/daemon": ["common/artifacts", "common/log", "worker_daemon/executor", "worker_daemon/links", "worker_daemon/profiler", "worker_daemon/transport/nccl", "common/wire",
                             "common/channel"],
    "worker_daemon/main.cc": ["worker_daemon/daemon", "common/config", "common/log"],
    "clients/cli": ["common/base", "common/channel", "common/clock"],
    "clients/cli/view": ["planner_service/wire"],
    "clients/cli/files": ["clients/cli/view"],
    "clients/cli/artifacts": ["clients/cli", "clients/cli/files", "clients/cli/view", "common/artifacts"],
    "clients/cli/flags": ["common/artifacts", "common/config", "planner_service/wire", "planner_service/importers"],
    "clients/cli/plan": ["clients/cli", "clients/cli/files", "clients/cli/flags"],
    "clients/cli/jobs": ["clients/cli", "clients/cli/files", "clients/cli/flags", "common/data"],
    "clients/cli/profiles": ["clients/cli", "clients/cli/files", "clients/cli/flags"],
    "clients/cli/local": ["clients/cli"],
    "clients/cli/service": ["clients/cli", "clients/cli/files", "clients/cli/view", "common/artifacts", "common/config"],
    "clients/cli/main.cc": ["clients/cli/artifacts", "clients/cli/plan", "clients/cli/jobs", "clients/cli/profiles", "clients/cli/local", "clients/cli/service"],
}

# Libraries that only some components may see: what their headers look like, and where those may be included.
RESTRICTED = {
    "gRPC": (
        r"grpc(pp)?/|.*\.grpc\.pb\.h$",
        ["common/channel", "planner_service/intake", "planner_service/service", "planner_service/store/etcd", "planner_service/election", "planner_service/main.cc", "worker_daemon/daemon",
         "worker_daemon/main.cc", "clients/"],
    ),
    "OpenSSL": (r"openssl/", ["common/artifacts", "common/channel", "planner_service/access", "worker_daemon/transport/proof"]),
    "protobuf": (
        r".*\.pb\.h$|google/(protobuf|rpc)/",
        ["common/wire", "planner_service/wire", "planner_service/intake", "planner_service/service", "planner_service/jobs",
         "planner_service/runs", "planner_service/records", "planner_service/lifecycle",
         "planner_service/registry", "planner_service/links", "planner_service/profiles", "planner_service/store", "planner_service/state", "planner_service/main.cc", "worker_daemon/daemon", "worker_daemon/main.cc",
         "clients/"],
    ),
    "LibTorch": (
        r"(torch|ATen|c10|caffe2)/",
        ["worker_daemon/torch", "worker_daemon/device", "worker_daemon/stage", "worker_daemon/profiler",
         "worker_daemon/update", "worker_daemon/messages", "worker_daemon/effects", "worker_daemon/executor", "planner_service/planners/drl_pp"],
    ),
    "CUDA or NCCL": (r"(cuda|nccl|cublas|nvml)\w*\.h$", ["worker_daemon/cuda", "worker_daemon/device", "worker_daemon/transport/nccl"]),
    "UCX": (r"uc[pst]/", ["worker_daemon/transport/ucx"]),
    "libcurl": (r"curl/", ["common/artifacts/store"]),
    "yaml-cpp": (r"yaml-cpp/", ["common/config"]),
    "SQLite": (r"sqlite3\.h$", ["planner_service/store"]),
    "prometheus-cpp": (r"prometheus/", ["planner_service/service", "worker_daemon/daemon"]),
}

# Planners are siblings: a folder under PLANNERS includes no other but the portfolio, which runs them all. Everybody else
# knows planners by name, through the table.
PLANNERS = "planner_service/planners/"
PORTFOLIO = "auto"
TABLE = "planner_service/front_door/planner_table."

OURS = ("common/", "planner_service/", "worker_daemon/", "clients/", "tests/", "protos/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def component_of(path):
  """The innermost component a path belongs to, None outside all of them."""
  return max((c for c in MAY_INCLUDE if path == c or path.startswith(c + "/")), key=len, default=None)


def allowed_from(component):
  """The component and everything it may include, directly or not."""
  allowed, pending = set(), [component]
  while pending:
    current = pending.pop()
    if current not in allowed:
      allowed.add(current)
      pending += MAY_INCLUDE[current]
  return allowed


def planner_of(path):
  """The planner whose folder a path is in, None outside all of them."""
  rest = path.removeprefix(PLANNERS)
  return rest.split("/")[0] if rest != path and "/" in rest else None


def planner_refusal(path, header):
  """Why a file may not include a header of a planner, None if it may or the header is of none."""
  own, other = planner_of(path), planner_of(header)
  if other is None or own in (other, PORTFOLIO) or path.startswith(TABLE):
    return None
  if own is None:
    return f"only {TABLE}cc may include a planner ({header})"
  return f"planner {own} may not include its sibling {other} ({header}): what they share is for planner_service/search"


def check_file(path, text, is_sibling=lambda path, header: "/" not in header):
  findings = []
  component = component_of(path)
  allowed = allowed_from(component) if component else None
  libraries = set()
  for match in INCLUDE.finditer(text):
    bracket, header = match.groups()
    where = f"{path}:{text.count(chr(10), 0, match.start(2)) + 1}"
    target = component_of(header)
    if header.startswith(OURS) and bracket == "<":
      findings.append(f"{where}: <{header}> is ours: include it with quotes")
    if bracket == '"' and is_sibling(path, header):
      findings.append(f'{where}: "{header}" is not relative to the root of the repository')
    if header.startswith("tests/"):
      findings.append(f"{where}: {header}: sources do not include tests")
    elif target and allowed is not None and target not in allowed:
      findings.append(f"{where}: {component} may not include {target} ({header})")
    elif header.startswith(OURS) and target is None:
      findings.append(f"{where}: {header} is in no known component")
    elif refusal := planner_refusal(path, header):
      findings.append(f"{where}: {refusal}")
    for library, (pattern, places) in RESTRICTED.items():
      if re.match(pattern, header):
        libraries.add(library)
        if not path.startswith(tuple(places)):
          findings.append(f"{where}: {library} ({header}) is only for {', '.join(places)}")
  if {"LibTorch", "protobuf"} <= libraries:
    findings.append(f"{path}: includes LibTorch and *.pb.h; LibTorch ships other protobuf headers: keep them apart")
  return findings


def check(sources):
  def is_sibling(path, header):
    return "/" not in header or sources.exists(f"{path.rsplit('/', 1)[0]}/{header}")

  findings = []
  for path in sources.matching([".h", ".cc", ".cu"]):
    if not path.startswith(("common/", "planner_service/", "worker_daemon/", "clients/")):
      continue
    if component_of(path) is None:
      findings.append(f"{path}: is in no known component; name it in tests/lint/check_includes.py")
    else:
      findings += check_file(path, sources.text(path), is_sibling)
  return findings


if __name__ == "__main__":
  tree.main(check)
