"""The scripts refuse what they do not know."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def bash(text, **options):
  """Runs a script that has sourced lib.sh."""
  script = f"set -euo pipefail\nsource '{ROOT}/scripts/lib.sh'\n{text}\n"
  return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120, **options)


class ArgumentsTest(unittest.TestCase):

  def refuses(self, *command):
    result = subprocess.run([ROOT / "scripts" / command[0], *command[1:]], capture_output=True, text=True, check=False,
                            timeout=120)
    self.assertNotEqual(result.returncode, 0)
    return result.stderr

  def test_unknown_arguments_are_named(self):
    for script in ("setup.sh", "test.sh", "lint.sh", "gpu.sh"):
      with self.subTest(script=script):
        self.assertIn("unknown argument '--fast'", self.refuses(script, "--fast"))

  def test_unknown_presets_are_named(self):
    for command in (["build.sh", "debug"], ["test.sh", "debug"], ["lint.sh", "--preset", "debug"]):
      with self.subTest(command=command):
        self.assertIn("unknown preset 'debug'", self.refuses(*command))

  def test_unknown_benchmark_is_named(self):
    self.assertIn("no benchmark 'speed'", self.refuses("bench.sh", "speed"))

  def test_presets_are_those_of_cmake(self):
    listed = subprocess.run(["cmake", "--list-presets"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for preset in ("dev", "release", "cuda", "asan", "tsan"):
      self.assertIn(f'"{preset}"', listed)
      self.assertEqual(bash(f"need_preset {preset}").returncode, 0)

  def test_help_is_not_an_error(self):
    for script in ("setup.sh", "build.sh", "test.sh", "lint.sh", "bench.sh", "golden.sh", "gpu.sh"):
      with self.subTest(script=script):
        result = subprocess.run([ROOT / "scripts" / script, "--help"], capture_output=True, text=True, check=False,
                                timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(script, result.stdout)


# What CTest keeps of a run, as GoogleTest, unittest, pytest and golden_plans write it.
LOG = """1/4 Test: peers_published
[ RUN      ] Published/PeersTest.Reach/0
tests/peers_test.cc:41: Skipped
no profile piper/gnmt.json: see tests/README.md

[  SKIPPED ] Published/PeersTest.Reach/0 (0 ms)
[       OK ] Published/PeersTest.Reach/1 (3 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Published/PeersTest.Reach/0
2/4 Test: deploy
test_alerts (metrics_test.MetricsTest.test_alerts) ... skipped 'no promtool'
test_names (metrics_test.MetricsTest.test_names) ... ok
3/4 Test: integration_storage
SKIPPED [1] tests/integration/test_storage.py:61: no right to mount a file system
4/4 Test: golden_plans_profiles
no profiles in ../shared/graphs: piper/gnmt.json; not checked: piper/gnmt.json/02
"""


class SharedFunctionsTest(unittest.TestCase):

  def test_skipped_tests_are_listed_with_their_reasons(self):
    with tempfile.NamedTemporaryFile("w") as file:
      file.write(LOG)
      file.flush()
      lines = bash(f"skipped_tests {file.name}").stdout.splitlines()
    self.assertEqual(lines, [
        "peers_published: Published/PeersTest.Reach/0: no profile piper/gnmt.json: see tests/README.md",
        "deploy: test_alerts (metrics_test.MetricsTest.test_alerts) ... skipped 'no promtool'",
        "integration_storage: SKIPPED [1] tests/integration/test_storage.py:61: no right to mount a file system",
        "golden_plans_profiles: no profiles in ../shared/graphs: piper/gnmt.json; not checked: piper/gnmt.json/02",
    ])

  def test_what_failed_and_passed_when_run_again_is_listed(self):
    log = "".join(f"{number}/3 Test: {name}\nOutput:\n<end of output>\nTest {end}.\n"
                  for number, name, end in [(1, "steady", "Passed"), (2, "torn", "Failed"), (2, "torn", "Passed"),
                                            (3, "broken", "Failed"), (3, "broken", "Failed")])
    with tempfile.NamedTemporaryFile("w") as file:
      file.write(log)
      file.flush()
      self.assertEqual(bash(f"unsteady_tests {file.name}").stdout.splitlines(), ["torn"])

  def test_hash_follows_the_contents(self):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
      before = bash(f"hash_of {file.name} absent").stdout
      self.assertEqual(before, bash(f"hash_of {file.name} absent").stdout)
      file.write("more")
      file.flush()
      self.assertNotEqual(before, bash(f"hash_of {file.name} absent").stdout)


if __name__ == "__main__":
  unittest.main()
