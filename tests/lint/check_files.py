"""How C++ is cut into files: a header of its name for each source, headers that are read at one sitting, and folders that
are seen at one glance."""

import collections

import tree

COMPONENTS = ("clients/cli/", "common/", "planner_service/", "worker_daemon/")
MAX_HEADER_LINES = 150
MAX_FILES = 26  # Sources and headers of a folder.

# Sources without a header of their name, and why; mains need no reason.
HEADERLESS = {
    "planner_service/planners/drl_pp/module.cc": "the one door of a shared module, found by the name of its symbol",
}

# What is still to be cut: sources without a header, longer headers, fuller folders. A line whose file has become as it
# should be is refused, so that the list only gets shorter.
PENDING = set()


def sources_without_header(sources, headerless):
  """(path, finding) of each, and of each exception that is none."""
  found = []
  for path in sources.matching([".cc", ".cu"]):
    header = path.rsplit(".", 1)[0] + ".h"
    needs = path.startswith(COMPONENTS) and not path.endswith("/main.cc") and path not in headerless
    if needs and header not in sources.paths:
      found.append((path, f"has no header of its name: what it declares is looked for in {header}"))
  found += [(path, "is no source without a header: strike it from HEADERLESS")
            for path in headerless if path not in sources.paths or path.rsplit(".", 1)[0] + ".h" in sources.paths]
  return found


def long_headers(sources):
  lines = {path: sources.text(path).count("\n") for path in sources.matching([".h"])}
  return [(path, f"{count} lines, more than {MAX_HEADER_LINES}: a header for each thing that it declares")
          for path, count in lines.items() if count > MAX_HEADER_LINES]


def full_folders(sources):
  count = collections.Counter(path.rpartition("/")[0] for path in sources.matching([".h", ".cc", ".cu"]))
  return [(folder, f"{files} sources and headers, more than {MAX_FILES}: part it by what belongs together")
          for folder, files in sorted(count.items()) if files > MAX_FILES]


def check_with(sources, headerless, pending):
  found = sources_without_header(sources, headerless) + long_headers(sources) + full_folders(sources)
  findings = [f"{path}: {what}" for path, what in found if path not in pending]
  places = {path for path, _ in found}
  return findings + [f"{path}: is as it should be: strike it from PENDING" for path in sorted(pending - places)]


def check(sources):
  return check_with(sources, HEADERLESS, PENDING)


if __name__ == "__main__":
  tree.main(check)
