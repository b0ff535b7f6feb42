"""What a path names may be no file, or never answer: a worker can end the run, and itself, whatever it waits for."""

import os
import shutil
import signal
import subprocess
import time

import pytest
from processes import MODELS, Processes, wait_for
from slowness import within

MODEL = "chain_f32"


@pytest.fixture(scope="module")
def system():
    with Processes(workers=1) as running:
        yield running


@pytest.mark.parametrize("what", ["data", "weights"])
@pytest.mark.parametrize("kind", ["fifo", "device", "directory"])
def test_what_is_no_file_is_refused_by_name(system, what, kind):
    path = system.path / f"{what}-{kind}.safetensors"
    suffix = ".data.safetensors" if what == "data" else ".safetensors"
    shutil.copy(MODELS / f"{MODEL}{suffix}", path)
    # It is a file when the job is submitted, and none when the worker opens it.
    assert system.cli("workers", "cordon", "w0").returncode == 0
    job = system.submit(MODEL, devices=1, **{what: path})
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert system.cli("workers", "uncordon", "w0").returncode == 0
    ended = system.await_end(job)
    assert ended["state"] == "failed", ended
    assert path.name in ended["message"] and len(ended["message"].splitlines()) == 1, ended["message"]
    trained = system.train(MODEL, steps=2)
    assert trained["state"] == "succeeded", trained["message"]


@pytest.mark.parametrize("kind", ["fifo", "file", "device"])
def test_an_output_that_is_no_directory_is_refused_by_name(system, kind):
    path = system.path / f"output-{kind}"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "file":
        path.write_text("")
    else:
        path.symlink_to("/dev/zero")
    ended = system.train(MODEL, devices=1, out=path)
    assert ended["state"] == "failed", ended
    assert path.name in ended["message"] and len(ended["message"].splitlines()) == 1, ended["message"]


@pytest.fixture
def hung(tmp_path):
    """A worker whose reads of HUNG/ never return: a library is loaded before it that waits there for ever, as a file
    system does whose server is gone."""
    source, library = tmp_path / "hang.c", tmp_path / "hang.so"
    source.write_text(
        """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <stdarg.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/stat.h>
        #include <unistd.h>
        static int hangs(const char *path) {
          if (path == 0 || strstr(path, "/hung/") == 0) return 0;
          char mark[4096];
          snprintf(mark, sizeof mark, "%s/%d", getenv("SEEN_TO_HANG"), (int)gettid());
          mkdir(mark, 0700);
          return 1;
        }
        int open(const char *path, int flags, ...) {
          va_list list;
          va_start(list, flags);
          mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
          va_end(list);
          while (hangs(path)) pause();
          int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
          return next(path, flags, mode);
        }
        int open64(const char *path, int flags, ...) {
          va_list list;
          va_start(list, flags);
          mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
          va_end(list);
          while (hangs(path)) pause();
          int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
          return next(path, flags, mode);
        }
        """
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    (tmp_path / "hung").mkdir()
    data = tmp_path / "hung" / "data.safetensors"
    data.write_bytes((MODELS / f"{MODEL}.data.safetensors").read_bytes())
    hangs = tmp_path / "hangs"
    hangs.mkdir()
    with Processes() as system:
        prefix = ["env", f"LD_PRELOAD={library}", f"SEEN_TO_HANG={hangs}"]
        system.start_worker("w0", "--drain-timeout", "2", prefix=prefix)
        system.await_workers(1)
        # Who looks whether paths are right hangs, and then the run.
        yield system, data, lambda: wait_for(lambda: len(list(hangs.iterdir())) == 2, "the worker to hang")


def test_a_worker_whose_file_system_hangs_says_so_takes_no_job_and_ends(hung):
    system, data, await_hang = hung
    job = system.submit(MODEL, devices=1, data=data, steps=5)
    await_hang()
    assert system.cli("cancel", job).returncode == 0
    assert system.job(job)["state"] == "cancelled"

    def device():
        return system.json("workers")["workers"][0]["devices"][0]

    assert device()["ending"] == job
    assert "ending " + job in system.cli("workers").stdout
    # It is offered to no other job, which goes to the next worker at once.
    waits = system.submit(MODEL, devices=1, steps=5, out=system.path / "other")
    time.sleep(1)
    assert system.job(waits)["state"] == "pending"
    system.start_worker("w1")
    assert system.await_end(waits)["state"] == "succeeded"
    # The planner is heard all the while.
    assert device()["ending"] == job
    with within(30):
        assert system.stop(system.workers["w0"], signal.SIGTERM) == 1
    assert f"ends without {job}" in system.log("w0")


def test_what_a_worker_hangs_on_does_not_keep_other_jobs_that_may_restart(hung):
    system, data, await_hang = hung
    job = system.submit(MODEL, devices=1, data=data, steps=5, out=system.path / "third", max_restarts=1)
    await_hang()
    system.stop(system.workers["w0"], signal.SIGKILL)
    system.start_worker("w2")
    ended = system.await_end(job)
    assert ended["state"] == "succeeded", ended["message"]
