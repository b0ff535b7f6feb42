"""What scripts/gpu says of what it ran: skipped tests, losses that differ, time that is over."""

import json
import os
import pathlib
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "gpu"))
import fallback  # noqa: E402
import machine as machines  # noqa: E402
import parts  # noqa: E402
import prepare  # noqa: E402
import report  # noqa: E402
import suites  # noqa: E402
import training  # noqa: E402

SUITE = """[ RUN      ] A.First
[       OK ] A.First (3 ms)
[ RUN      ] A.Second/0
"""


def on(folder, dry=True):
  return machines.Machine(ROOT, pathlib.Path(folder), pathlib.Path(folder), pathlib.Path(folder) / "torch", dry)


class RunTest(unittest.TestCase):

  def test_a_command_ends_with_its_group_when_its_time_is_over(self):
    start = time.monotonic()
    ended = machines.run(["bash", "-c", "echo begun; sleep 60 & sleep 60"], 4, dict(os.environ))
    self.assertIsNone(ended.code)
    self.assertFalse(ended.ok)
    self.assertEqual(ended.output, "begun\n")
    self.assertIn("time was over", ended.tail())
    self.assertLess(time.monotonic() - start, 30)

  def test_the_last_words_are_those_of_both_outputs(self):
    ended = machines.run(["bash", "-c", "echo one; echo two >&2; exit 3"], 30, dict(os.environ))
    self.assertEqual(ended.tail(), "one\ntwo\nexit status 3")

  def test_packed_libraries_go_first(self):
    environment = on("/bundle").of_nccl()
    folders = environment["LD_LIBRARY_PATH"].split(":")
    self.assertEqual(folders[:3], ["/bundle/nccl", "/bundle/lib", "/bundle/torch/lib"])
    self.assertEqual(environment["NCCL_MULTI_RANK_GPU_ENABLE"], "1")


class SuitesTest(unittest.TestCase):

  def finding(self, found, code=0, required=True):
    return suites.judge_suite("s", machines.Ended(code, SUITE, "", 1.0), found, required)

  def test_a_skipped_test_is_a_failure_where_there_is_a_gpu(self):
    found = {"A.First": "passed", "A.Second/0": "skipped: no GPU"}
    self.assertIs(self.finding(found).verdict, report.Verdict.FAILED)
    self.assertIn("no GPU", self.finding(found).why)
    self.assertIs(self.finding(found, required=False).verdict, report.Verdict.NOT_PROVED)

  def test_failures_are_failures_everywhere(self):
    found = {"A.First": "failed", "A.Second/0": "skipped: no GPU"}
    for required in (True, False):
      self.assertIs(self.finding(found, 1, required).verdict, report.Verdict.FAILED)
      self.assertIs(self.finding({}, 127, required).verdict, report.Verdict.FAILED)
      self.assertIs(self.finding({"A.First": "passed"}, -6, required).verdict, report.Verdict.FAILED)

  def test_passes(self):
    self.assertIs(self.finding({"A.First": "passed"}).verdict, report.Verdict.PROVED)

  def test_the_test_that_hangs_is_named(self):
    self.assertEqual(suites.hung_test(SUITE), "A.Second/0")
    self.assertEqual(self.finding({}, None).why, "its time was over in A.Second/0, after 1 tests in 0.0 s")
    self.assertEqual(suites.hung_test(SUITE.split("[ RUN      ] A.S")[0]), "")

  def test_a_failure_with_a_parameter_has_ended(self):
    failed = SUITE + "[  FAILED  ] A.Second/0, where GetParam() = 7 (2000 ms)\n"
    self.assertEqual(suites.until_then(failed), "its time was over in no test, after 2 tests in 2.0 s")

  def test_real_programs_are_read(self):
    sample = pathlib.Path(os.environ["STAGEWRIGHT_SKIPS_SAMPLE"])
    with tempfile.TemporaryDirectory() as folder:
      for dry, verdict in ((True, report.Verdict.NOT_PROVED), (False, report.Verdict.FAILED)):
        finding, _ = suites.run_suite(on(folder, dry), sample, 30, dict(os.environ))
        self.assertIs(finding.verdict, verdict)
        self.assertIn("2 tests, 0 failed, 1 skipped", finding.why)
        self.assertIn("no GPU in a sample", finding.why)
      finding, _ = suites.run_suite(on(folder, False), sample, 30, dict(os.environ), "--gtest_filter=*Passes")
      self.assertIs(finding.verdict, report.Verdict.PROVED)


class TrainingTest(unittest.TestCase):

  def test_the_first_step_that_differs_is_named(self):
    self.assertEqual(training.first_difference([1.0, 2.0], [1.0, 2.0001], 1e-4), "")
    self.assertEqual(training.first_difference([1.0, 2.0], [1.0, 2.001], 1e-4), "step 1: 2 and 2.001")
    self.assertEqual(training.first_difference([1.0], [1.0, 2.0], 1e-4), "1 steps and 2")

  def test_a_loss_that_is_no_number_differs(self):
    nan = float("nan")
    self.assertEqual(training.first_difference([nan], [nan], 1e-4), "step 0: nan and nan")

  def test_the_median_leaves_out_what_warms_up(self):
    self.assertEqual(training.Trained([], [9.0] * 5 + [1.0, 2.0, 3.0]).median_seconds(), 2.0)
    self.assertEqual(training.Trained([], [9.0, 8.0, 7.0]).median_seconds(), 8.0)

  def test_throughput(self):
    ours, theirs = training.Trained([], [1.0]), training.Trained([], [0.96])
    self.assertIs(training.as_fast("n", ours, theirs, 0.95, dry=False).verdict, report.Verdict.PROVED)
    self.assertIs(training.as_fast("n", ours, theirs, 0.97, dry=False).verdict, report.Verdict.FAILED)
    self.assertIs(training.as_fast("n", ours, theirs, 0.95, dry=True).verdict, report.Verdict.NOT_PROVED)
    self.assertIs(training.as_fast("n", None, theirs, 0.95, dry=False).verdict, report.Verdict.NOT_PROVED)


class PartsTest(unittest.TestCase):

  def part(self, prove):
    return parts.Part("p", 10, True, prove)

  def test_what_raises_fails_and_what_has_no_time_stays_open(self):
    def raises(machine, seconds):
      raise FileNotFoundError("no such program")

    result = self.part(raises).run(on("/"), 5)
    self.assertIs(result.verdict, report.Verdict.FAILED)
    self.assertIn("no such program", result.findings[0].why)
    self.assertIs(self.part(raises).run(on("/"), 0).verdict, report.Verdict.NOT_PROVED)

  def test_a_part_has_the_less_of_its_time_and_what_is_left(self):
    given = []
    part = self.part(lambda machine, seconds: (given.append(seconds) or [], {}))
    part.run(on("/"), 500)
    part.run(on("/"), 4)
    self.assertEqual(given, [10, 4])

  def test_all_that_must_hold_fits_into_one_call(self):
    self.assertLessEqual(sum(part.seconds for part in parts.PARTS if part.must), 560)

  def test_a_part_that_finds_nothing_proves_nothing(self):
    self.assertIs(self.part(lambda *_: ([], {})).run(on("/"), 5).verdict, report.Verdict.NOT_PROVED)


class ReportTest(unittest.TestCase):

  def result(self, verdict, must=True):
    return report.Result("p", must, (report.Finding("c", verdict, "a | b\nc"),), {"rows": {"r": {"s": 0.12345}}}, 1)

  def test_the_whole_is_proved_if_all_that_must_hold_is(self):
    good, bad = self.result(report.Verdict.PROVED), self.result(report.Verdict.FAILED)
    undecided = self.result(report.Verdict.NOT_PROVED)
    self.assertTrue(report.whole([good, self.result(report.Verdict.FAILED, must=False)], dry=False))
    self.assertFalse(report.whole([good, bad], dry=False))
    self.assertFalse(report.whole([good, undecided], dry=False))
    self.assertTrue(report.whole([good, undecided], dry=True))
    self.assertFalse(report.whole([good, bad], dry=True))
    self.assertFalse(report.whole([], dry=False))

  def test_tables(self):
    text = report.as_markdown([self.result(report.Verdict.PROVED)])
    self.assertIn("| p | c | proved | a \\| b<br>c |", text)
    self.assertIn("| r | 0.1235 |", text)
    self.assertEqual(report.as_json([self.result(report.Verdict.FAILED)])[0]["verdict"], "failed")
    json.dumps(report.as_json([self.result(report.Verdict.FAILED)]))


class PrepareTest(unittest.TestCase):

  def test_libraries_that_travel(self):
    listed = """\tlinux-vdso.so.1 (0x1)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x1)
\tlibstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x1)
\tlibtorch_cuda.so => /v/site-packages/torch/lib/libtorch_cuda.so (0x1)
\tlibgrpc.so.29 => /lib/x86_64-linux-gnu/libgrpc.so.29 (0x1)
\tlibcudart.so.13 => /usr/local/cuda/lib64/libcudart.so.13 (0x1)
\t/lib64/ld-linux-x86-64.so.2 (0x1)
"""
    self.assertEqual(list(prepare.libraries_of(listed)), ["libgrpc.so.29"])
    with self.assertRaisesRegex(ValueError, "libucp.so.0 is not found"):
      prepare.libraries_of("\tlibucp.so.0 => not found\n")

  def test_what_is_built_there_is_what_trains(self):
    command = [str(word) for word in fallback.configure(on("/bundle"))]
    self.assertIn("-DSTAGEWRIGHT_SERVICES=OFF", command)
    self.assertIn("-DCMAKE_PREFIX_PATH=/bundle/dev/usr", command)
    self.assertEqual(set(fallback.TARGETS), {*parts.SUITES, "engine_bench"})

  def test_every_suite_for_gpus_is_run(self):
    listed = set()
    for path in (ROOT / "tests" / "worker_daemon").rglob("CMakeLists.txt"):
      text = path.read_text().replace("\n", " ")
      for call in text.split("stagewright_test(NAME ")[1:]:
        words = call.split(")")[0].split()
        if "GPU" in words:
          listed.add(words[0])
    suites_of = {name.replace("${suite}", base) for name in listed
                 for base in ("transport_conformance_test", "all_reduce_test", "transport_process_test")}
    self.assertEqual(suites_of, set(parts.SUITES))


class OutputTest(unittest.TestCase):

  def test_no_bundle_is_said(self):
    import there
    with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(SystemExit, "scripts/gpu.sh prepare"):
      there.unpack(pathlib.Path(folder), pathlib.Path(folder))

  def test_programs_that_do_not_start_are_built_first(self):
    import there
    proved = parts.Part("only", 5, True, lambda *_: ([report.proved("c")], {}))
    with tempfile.TemporaryDirectory() as folder, \
         mock.patch.object(there, "PARTS", (proved,)), \
         mock.patch.object(fallback, "programs_start", return_value=False), \
         mock.patch.object(fallback, "build", return_value=[report.failed("the sources build here", "no compiler")]):
      results = there.prove(on(folder, dry=False), {}, pathlib.Path(folder) / "out", time.monotonic() + 60, [])
      self.assertEqual([result.part for result in results], ["build", "only"])
      self.assertFalse(report.whole(results, dry=False))
      kept = json.loads((pathlib.Path(folder) / "out" / "gpu.json").read_text())
      self.assertEqual([part["verdict"] for part in kept["parts"]], ["failed", "proved"])


if __name__ == "__main__":
  unittest.main()
