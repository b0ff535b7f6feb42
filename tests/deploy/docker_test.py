"""The Dockerfiles are well formed, run without root, copy what exists and install what the programs load."""

import fnmatch
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

import deployment

KEYWORDS = {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"}


class DockerTest(unittest.TestCase):

  def each(self):
    files = deployment.dockerfiles()
    self.assertEqual([p.name for p in files], ["planner.Dockerfile", "worker-cuda.Dockerfile", "worker.Dockerfile"])
    for path, dockerfile in files.items():
      with self.subTest(path=path.name):
        yield dockerfile

  def test_instructions_are_known_and_begin_with_from(self):
    for dockerfile in self.each():
      self.assertEqual(dockerfile.instructions[0][0], "FROM")
      for keyword, rest in dockerfile.instructions:
        self.assertIn(keyword, KEYWORDS)
        self.assertTrue(rest, f"{keyword} says nothing")

  def test_shell_commands_parse(self):
    for dockerfile in self.each():
      for command in dockerfile.all("RUN"):
        result = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)

  def test_final_stage_is_debian_without_root(self):
    for dockerfile in self.each():
      stages = dockerfile.stages()
      self.assertGreaterEqual(len(stages), 2, "build tools stay out of the final image")
      final = dockerfile.final()
      self.assertEqual(final[0], ("FROM", "debian:bookworm-slim"))
      user = [rest for keyword, rest in final if keyword == "USER"][-1]
      self.assertNotIn(user, ("0", "root"))
      self.assertIn(f"--uid {user}", " ".join(rest for keyword, rest in final if keyword == "RUN"))

  def test_copies_exist(self):
    ignored = _DockerIgnore()
    for dockerfile in self.each():
      stages = dockerfile.stages()
      for rest in dockerfile.all("COPY"):
        words = shlex.split(rest)
        if words[0].startswith("--from="):
          self.assertIn(words[0].removeprefix("--from="), stages)
          continue
        for source in words[:-1]:
          self.assertTrue((deployment.ROOT / source).exists(), f"COPY {source}: not in the tree")
          self.assertTrue(ignored.lets_in(source), f"COPY {source}: kept out by .dockerignore")

  def test_cmake_options_exist(self):
    text = "".join(p.read_text() for p in (deployment.ROOT / "cmake").glob("*.cmake"))
    for dockerfile in self.each():
      for name in re.findall(r"-D(\w+)=", " ".join(dockerfile.all("RUN"))):
        self.assertIn(name, text)

  def test_wheels_libraries_are_on_the_loaders_path(self):
    """A wheel's libraries lie in a folder of its own, to which no run path of the program leads but to LibTorch's."""
    for dockerfile in self.each():
      final = dockerfile.final()
      copied = [rest.split()[-1] for keyword, rest in final if keyword == "COPY" and " /opt/libtorch/" in rest]
      run_path = {f"{folder}/lib" for folder in re.findall(r"-DSTAGEWRIGHT_TORCH_DIR=(\S+)", " ".join(dockerfile.all("RUN")))}
      wheels = {f"{folder}/{wheel}/lib" for folder in set(copied) - run_path for wheel in ("cu13", "nccl")}
      commands = [rest for keyword, rest in final if keyword == "RUN" and "ldconfig" in rest]
      self.assertLessEqual(wheels, _loaders_path(wheels, commands))
      keywords = [keyword for keyword, rest in final if keyword in ("COPY", "USER") or rest in commands]
      if commands:
        self.assertEqual(keywords[-2:], ["RUN", "USER"], "as root, with all files there")

  def test_runtime_packages_hold_what_the_programs_load(self):
    checked = 0
    for dockerfile in self.each():
      self.assertIn(dockerfile.command()[0], dockerfile.executables())
      self.assertIn(dockerfile.start()[0], dockerfile.programs())
      for name in dockerfile.programs():
        program = deployment.program_path(name)
        if program is None:
          continue
        checked += 1
        missing = {library: package for library, package in _needed_packages(program).items()
                   if package not in dockerfile.runtime_packages()}
        self.assertEqual(missing, {}, f"libraries that {name} loads and the final image lacks")
    if not checked:
      self.skipTest("no program is built here")


class _DockerIgnore:
  """The last pattern that matches decides, as Docker has it; here all patterns are whole paths or *."""

  def __init__(self):
    lines = (deployment.ROOT / ".dockerignore").read_text().splitlines()
    self.patterns = [line for line in lines if line and not line.startswith("#")]

  def lets_in(self, path):
    inside = True
    for pattern in self.patterns:
      name = pattern.removeprefix("!")
      if name == "*" or fnmatch.fnmatch(path, name) or path.startswith(name + "/"):
        inside = pattern.startswith("!")
    return inside


def _loaders_path(folders, commands):
  """What ldconfig looks through when commands are run in an image that has these folders."""
  with tempfile.TemporaryDirectory() as root:
    configuration = pathlib.Path(root, "etc/ld.so.conf.d")
    configuration.mkdir(parents=True)
    for folder in folders:
      pathlib.Path(root + folder).mkdir(parents=True)
    ldconfig = pathlib.Path(root, "ldconfig")
    ldconfig.write_text(f"#!/bin/sh\ncat {configuration}/*.conf > {root}/seen\n")
    ldconfig.chmod(0o755)
    for command in commands:
      command = re.sub(r"(/opt/libtorch|/etc/ld\.so\.conf\.d)/", rf"{root}\1/", command)
      subprocess.run(["sh", "-e", "-c", command], check=True, env={**os.environ, "PATH": f"{root}:{os.environ['PATH']}"})
    seen = pathlib.Path(root, "seen")
    return {line.removeprefix(root) for line in seen.read_text().split()} if seen.exists() else set()


def _needed_packages(program):
  """The Debian package of each library that the program itself names (DT_NEEDED); base system libraries left out."""
  needed = re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-d", program], capture_output=True, text=True,
                                                          check=True).stdout)
  loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
  packages = {}
  for library in needed:
    match = re.search(rf"{re.escape(library)} => (\S+)", loaded)
    if not match or "/torch/lib/" in match.group(1):
      continue
    path = pathlib.Path(match.group(1)).resolve()
    for candidate in (str(path), str(path).removeprefix("/usr")):
      owner = subprocess.run(["dpkg", "-S", candidate], capture_output=True, text=True, check=False)
      if owner.returncode == 0:
        packages[library] = owner.stdout.split(":")[0]
        break
  base = {"libc6", "libstdc++6", "libgcc-s1", "libasan8", "libubsan1", "libtsan2"}
  return {library: package for library, package in packages.items() if package not in base}


if __name__ == "__main__":
  unittest.main()
