"""A worker for each GPU, with a driver's tool and a worker that only say how they are called."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import deployment

SCRIPT = deployment.DEPLOY / "docker" / "worker-per-gpu.sh"
TWO = """GPU 0: NVIDIA H200 (UUID: GPU-aaa)
GPU 1: NVIDIA H200 (UUID: GPU-bbb)
"""
CUT = """GPU 0: NVIDIA H200 (UUID: GPU-aaa)
  MIG 3g.71gb     Device  0: (UUID: MIG-a0)
  MIG 3g.71gb     Device  1: (UUID: MIG-a1)
GPU 1: NVIDIA H200 (UUID: GPU-bbb)
"""
# Signals $SIGNAL, if any, to the script that asks.
SMI = """#!/usr/bin/env bash
[[ -z ${SIGNAL:-} ]] || kill "-$SIGNAL" "$PPID"
"""
# Hears signals as the worker does: blocked from the beginning, taken one by one. It ends with the status that a file
# end-GPU names, at once with 7 on the GPUs of $FAIL.
WORKER = f"""#!{sys.executable}
import os, pathlib, signal, sys
told = {{signal.SIGTERM, signal.SIGINT}}
signal.pthread_sigmask(signal.SIG_BLOCK, told)
gpu = os.environ["CUDA_VISIBLE_DEVICES"]
def say(what):
  with open(os.environ["CALLS"], "a") as calls:
    calls.write(gpu + " " + what + "\\n")
say(" ".join(sys.argv[1:]))
if gpu in os.environ.get("FAIL", "").split():
  sys.exit(7)
folder = pathlib.Path(os.environ["CALLS"]).parent
end = folder / ("end-" + gpu)
while not end.exists():
  if not folder.exists():
    sys.exit("the test is over")
  heard = signal.sigtimedwait(told, 0.02)
  if heard:
    say(signal.Signals(heard.si_signo).name)
status = int(end.read_text())
end.unlink()
say("ended")
sys.exit(status)
"""
# Takes no time, unless $PAUSE says how much.
SLEEP = """#!/usr/bin/env bash
echo "$CUDA_VISIBLE_DEVICES pause $1" >> "$CALLS"
exec /bin/sleep "${PAUSE:-0}"
"""


class PerGpuTest(unittest.TestCase):

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.path = pathlib.Path(folder.name)
    self.calls = self.path / "calls"
    self.calls.write_text("")

  def start(self, listed, *flags, script=SCRIPT, **environment):
    programs = {"nvidia-smi": SMI + f"cat <<'LIST'\n{listed}LIST\n", "stagewright-worker": WORKER, "sleep": SLEEP}
    for name, text in programs.items():
      (self.path / name).write_text(text)
      (self.path / name).chmod(0o755)
    process = subprocess.Popen(
        [script, *flags], cwd=self.path, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}", "CALLS": str(self.calls), **environment})
    # Workers see that the folder is gone.
    self.addCleanup(process.stderr.close)
    self.addCleanup(process.wait)
    self.addCleanup(process.kill)
    return process

  def end(self, gpu, status):
    """Has the worker of a GPU end; the file appears with what is in it."""
    (self.path / "new").write_text(str(status))
    (self.path / "new").rename(self.path / f"end-{gpu}")

  def lines_of(self, gpu="", without=" pause "):
    """What was said on a GPU, or on all, in order."""
    return [line.removeprefix(gpu).strip() for line in self.calls.read_text().splitlines()
            if line.startswith(gpu) and without not in line]

  def pauses(self, gpu):
    return [int(pause) for pause in re.findall(rf"^{gpu} pause (\d+)$", self.calls.read_text(), re.MULTILINE)]

  def wait_for(self, what):
    deadline = time.monotonic() + 20
    while not what():
      self.assertLess(time.monotonic(), deadline, self.calls.read_text())
      time.sleep(0.02)

  def starts(self, gpu):
    return sum("--devices=cuda:0" in line for line in self.lines_of(gpu))

  def await_starts(self, **count):
    self.wait_for(lambda: all(self.starts(f"GPU-{name}") >= wanted for name, wanted in count.items()))

  def leave(self, process):
    """Tells the script to end and its two workers to let it."""
    process.send_signal(signal.SIGTERM)
    self.wait_for(lambda: all("SIGTERM" in self.lines_of(gpu) for gpu in ("GPU-aaa", "GPU-bbb")))
    for gpu in ("GPU-aaa", "GPU-bbb"):
      self.end(gpu, 0)
    _, errors = process.communicate(timeout=20)
    self.assertEqual(process.returncode, 0, errors)
    return errors

  def test_a_process_for_each_gpu_until_it_is_told_to_end(self):
    process = self.start(TWO, "--planner=p:7070", "--name=n", "--metrics-listen=0.0.0.0:9071", f"--work-dir={self.path}")
    self.await_starts(aaa=1, bbb=1)
    self.leave(process)
    for i, uuid in enumerate(("GPU-aaa", "GPU-bbb")):
      self.assertEqual(self.lines_of(uuid), [
          f"--planner=p:7070 --name=n-gpu{i} --devices=cuda:0 --metrics-listen=0.0.0.0:{9071 + i} "
          f"--work-dir={self.path}/gpu{i}", "SIGTERM", "ended"])
      self.assertTrue((self.path / f"gpu{i}").is_dir())

  def test_the_image_starts_a_worker_for_each_gpu(self):
    image = next(d for p, d in deployment.dockerfiles().items() if p.name == "worker-cuda.Dockerfile")
    entry, *flags = image.command()
    self.assertIn(f"COPY deploy/docker/{SCRIPT.name} /usr/local/bin/{entry}", [" ".join(line) for line in image.final()])
    process = self.start(TWO, *flags, f"--work-dir={self.path}")
    self.await_starts(aaa=1, bbb=1)
    self.leave(process)
    self.assertIn("--planner=stagewright-planner:7070", self.lines_of("GPU-bbb")[0].split())

  def test_each_signal_is_passed_on_once(self):
    """A worker takes a second SIGTERM for the end of its patience: it gets one when it is sent."""
    process = self.start(TWO)
    self.await_starts(aaa=1, bbb=1)
    process.send_signal(signal.SIGTERM)
    self.wait_for(lambda: all("SIGTERM" in self.lines_of(gpu) for gpu in ("GPU-aaa", "GPU-bbb")))
    # The script sees one of them end while the other still drains.
    self.end("GPU-aaa", 0)
    self.wait_for(lambda: "ended" in self.lines_of("GPU-aaa"))
    process.send_signal(signal.SIGTERM)
    self.wait_for(lambda: self.lines_of("GPU-bbb").count("SIGTERM") >= 2)
    process.send_signal(signal.SIGINT)
    self.wait_for(lambda: "SIGINT" in self.lines_of("GPU-bbb"))
    self.end("GPU-bbb", 0)
    process.communicate(timeout=20)
    self.assertEqual(process.returncode, 0)
    self.assertEqual(self.lines_of("GPU-aaa")[1:], ["SIGTERM", "ended"])
    self.assertEqual(self.lines_of("GPU-bbb")[1:], ["SIGTERM", "SIGTERM", "SIGINT", "ended"])

  def test_instances_of_a_gpu_take_its_place(self):
    self.start(CUT, "--planner=p:7070")
    self.wait_for(lambda: len(self.lines_of()) >= 3)
    self.assertEqual(sorted(line.split()[0] for line in self.lines_of()), ["GPU-bbb", "MIG-a0", "MIG-a1"])

  def test_a_worker_that_fails_is_started_again_and_the_others_are_left_alone(self):
    process = self.start(TWO)
    self.await_starts(aaa=1, bbb=1)
    self.end("GPU-bbb", 1)
    self.await_starts(bbb=2)
    errors = self.leave(process)
    self.assertEqual(self.lines_of("GPU-aaa")[1:], ["SIGTERM", "ended"])
    first, *rest = self.lines_of("GPU-bbb")
    self.assertEqual(rest, ["ended", first, "SIGTERM", "ended"])
    self.assertIn("the worker of GPU 1 (GPU-bbb) ended with status 1: it is started again in 1 s", errors)

  def test_pauses_grow_to_a_minute(self):
    process = self.start(TWO, FAIL="GPU-bbb")
    self.await_starts(aaa=1, bbb=9)
    process.send_signal(signal.SIGTERM)
    self.wait_for(lambda: "SIGTERM" in self.lines_of("GPU-aaa"))
    self.end("GPU-aaa", 0)
    process.communicate(timeout=20)
    self.assertEqual(self.pauses("GPU-bbb")[:9], [0, 1, 2, 4, 8, 16, 32, 60, 60])
    self.assertEqual(self.starts("GPU-aaa"), 1)
    self.assertEqual(process.returncode, 0)

  def test_pauses_begin_anew_after_a_worker_ran_for_a_while(self):
    script = self.path / "patient.sh"
    text = SCRIPT.read_text()
    self.assertIn("\nsteady=60\n", text)
    # Every run is long enough, also one that begins before its pause would be over.
    script.write_text(text.replace("\nsteady=60\n", "\nsteady=-60\n"))
    script.chmod(0o755)
    process = self.start(TWO, script=script, FAIL="GPU-aaa GPU-bbb")
    self.await_starts(aaa=9, bbb=9)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    for gpu in ("GPU-aaa", "GPU-bbb"):
      self.assertEqual(self.pauses(gpu)[:9], [0] + 8 * [1])

  def test_a_pause_ends_with_the_script(self):
    process = self.start(TWO, FAIL="GPU-bbb", PAUSE="30")
    # Both begin with one; nothing is started until it is over.
    self.wait_for(lambda: len(self.pauses("GPU-aaa") + self.pauses("GPU-bbb")) == 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    self.assertEqual(process.returncode, 0)
    self.assertEqual(self.lines_of(), [])

  def test_nothing_is_started_after_a_signal(self):
    process = self.start(TWO, SIGNAL="TERM")
    _, errors = process.communicate(timeout=20)
    self.assertEqual(process.returncode, 0, errors)
    self.assertEqual(self.calls.read_text(), "")

  def test_ends_when_no_worker_can_be_kept(self):
    process = self.start(TWO, FAIL="GPU-aaa GPU-bbb")
    _, errors = process.communicate(timeout=20)
    self.assertEqual(process.returncode, 7, errors)
    self.assertIn("no worker can be kept", errors)
    for gpu in ("GPU-aaa", "GPU-bbb"):
      self.assertGreaterEqual(self.starts(gpu), 4)

  def test_a_worker_that_was_told_to_end_is_left_so(self):
    process = self.start(TWO)
    self.await_starts(aaa=1, bbb=1)
    self.end("GPU-aaa", 0)
    self.wait_for(lambda: "ended" in self.lines_of("GPU-aaa"))
    # The other one ends later and is back: the first had its turn before.
    self.end("GPU-bbb", 1)
    self.await_starts(bbb=2)
    self.end("GPU-bbb", 0)
    _, errors = process.communicate(timeout=20)
    self.assertEqual(process.returncode, 0, errors)
    self.assertEqual(self.starts("GPU-aaa"), 1)

  def test_what_cannot_be_done_is_said(self):
    for listed, flags, message in (("", (), "no GPU"), (TWO, ("--devices=cuda:all",), "leave --devices=cuda:all out"),
                                   (TWO, ("--planner", "p:7070"), "'--planner' is not --FLAG=VALUE")):
      process = self.start(listed, *flags)
      _, errors = process.communicate(timeout=20)
      self.assertEqual(process.returncode, 2)
      self.assertIn(message, errors)
    self.assertEqual(self.calls.read_text(), "")


if __name__ == "__main__":
  unittest.main()
