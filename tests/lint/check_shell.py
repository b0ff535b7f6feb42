"""Every shell script passes shellcheck."""

import subprocess

import tree


def is_shell(sources, path):
  return path.endswith(".sh") or sources.text(path).startswith(("#!/usr/bin/env bash", "#!/bin/sh", "#!/bin/bash"))


def check(sources):
  candidates = [p for p in sources.paths if p.endswith(".sh") or "." not in p.split("/")[-1]]
  scripts = [p for p in candidates if is_shell(sources, p)]
  if not scripts:
    return []
  result = subprocess.run(["shellcheck", "--external-sources", "--format=gcc", *scripts], cwd=sources.root,
                          capture_output=True, text=True, check=False)
  return (result.stdout + result.stderr).strip().splitlines() if result.returncode else []


if __name__ == "__main__":
  tree.main(check)
