"""The scripts refuse what they do not know."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def bash(text, **options):
  """Runs a script that has sourced lib.sh."""
  script = f"set -euo pipefail\nsource '{ROOT}/scripts/lib.sh'\n{text}\n"
  return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=30, **options)


class ArgumentsTest(unittest.TestCase):

  def refuses(self, *command):
    result = subprocess.run([ROOT / "scripts" / command[0], *command[1:]], capture_output=True, text=True, check=False,
                            timeout=30)
    self.assertNotEqual(result.returncode, 0)
    return result.stderr

  def test_unknown_arguments_are_named(self):
    for script in ("setup.sh", "test.sh", "lint.sh"):
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
    for preset in ("dev", "release", "asan", "tsan"):
      self.assertIn(f'"{preset}"', listed)
      self.assertEqual(bash(f"need_preset {preset}").returncode, 0)

  def test_help_is_not_an_error(self):
    for script in ("setup.sh", "build.sh", "test.sh", "lint.sh", "bench.sh", "golden.sh"):
      with self.subTest(script=script):
        result = subprocess.run([ROOT / "scripts" / script, "--help"], capture_output=True, text=True, check=False,
                                timeout=30)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(script, result.stdout)


class SharedFunctionsTest(unittest.TestCase):

  def test_hash_follows_the_contents(self):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
      before = bash(f"hash_of {file.name} absent").stdout
      self.assertEqual(before, bash(f"hash_of {file.name} absent").stdout)
      file.write("more")
      file.flush()
      self.assertNotEqual(before, bash(f"hash_of {file.name} absent").stdout)


if __name__ == "__main__":
  unittest.main()
