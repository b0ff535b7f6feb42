"""A suite for GPUs on a machine without one is skipped, unless somebody says that there is one."""

import os
import subprocess
import unittest


def run(required, *flags):
  """The sample: a test that passes and one that is skipped."""
  environment = {name: value for name, value in os.environ.items() if name != "STAGEWRIGHT_REQUIRE_GPU"}
  if required is not None:
    environment["STAGEWRIGHT_REQUIRE_GPU"] = required
  return subprocess.run([os.environ["STAGEWRIGHT_SKIPS_SAMPLE"], *flags], env=environment, capture_output=True, text=True,
                        check=False, timeout=120)


class SkipsTest(unittest.TestCase):

  def test_skipped_where_nothing_is_required(self):
    for required in (None, "0", ""):
      with self.subTest(required=required):
        result = run(required)
        self.assertEqual(result.returncode, 77)
        self.assertIn("no GPU in a sample", result.stdout)

  def test_failed_where_a_gpu_is_required(self):
    result = run("1")
    self.assertEqual(result.returncode, 1)
    self.assertIn("STAGEWRIGHT_REQUIRE_GPU=1, but 1 of 2 tests were skipped:", result.stderr)
    self.assertIn("Sample.IsSkipped: no GPU in a sample", result.stderr)

  def test_passes_where_nothing_is_skipped(self):
    self.assertEqual(run("1", "--gtest_filter=*Passes").returncode, 0)

  def test_a_run_of_nothing_proves_nothing(self):
    self.assertEqual(run(None, "--gtest_filter=-*").returncode, 0)
    result = run("1", "--gtest_filter=-*")
    self.assertEqual(result.returncode, 1)
    self.assertIn("no test was run", result.stderr)

  def test_tests_can_be_listed(self):
    self.assertEqual(run("1", "--gtest_list_tests").returncode, 0)


if __name__ == "__main__":
  unittest.main()
