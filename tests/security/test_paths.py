"""Paths of jobs that leave the directories of a worker."""

from service import Planner, tiny_job, wait_for

from stagewright.proto import event_pb, jobs_pb


def failure(planner, **paths):
    """Why the job failed."""
    stubs = planner.stubs()
    job = stubs.SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job(**paths)), timeout=60).job.name

    def ended():
        found = stubs.GetJob(jobs_pb.GetJobRequest(name=job), timeout=60).job
        return found if found.state == event_pb.JOB_STATE_FAILED else None

    return wait_for(ended, f"the end of {job}").message


def test_jobs_stay_within_the_roots_of_a_worker(tmp_path):
    data, out, secret = (tmp_path / name for name in ("data", "out", "secret"))
    for folder in (data, out, secret):
        folder.mkdir()
    (secret / "key").write_text("a secret of this machine")
    (data / "link").symlink_to(secret / "key")
    inside = {"weights_path": f"{data}/w", "data_path": f"{data}/d", "output_path": f"{out}/job"}
    with Planner(tmp_path) as planner:
        planner.worker("w0", "--data-root", data, "--output-root", out)
        for field in inside:
            for path in [f"{secret}/key", f"{data}/../secret/key", f"{data}/link", "/etc/passwd", f"{secret}/nothing"]:
                message = failure(planner, **{**inside, field: path})
                assert f"spec.{field}: outside of the directories that jobs may" in message, message
        assert "outside" not in failure(planner, **inside)
        assert list(out.iterdir()) == [] or (out / "job").is_dir()
        assert {path.name for path in secret.iterdir()} == {"key"}


def test_a_worker_says_at_its_start_what_is_wrong_with_its_roots(tmp_path):
    file, missing = tmp_path / "file", tmp_path / "missing"
    file.write_text("")
    with Planner(tmp_path) as planner:
        for flag in "--data-root", "--output-root":
            log = planner.worker("w0", flag, file)
            wait_for(lambda log=log: log.read_text().count("\n") == 1, "the refusal")
            assert f"{flag} {file}: it is no directory" in log.read_text()
        log = planner.worker("w1", "--data-root", missing, "--output-root", missing, "--device-kind", "cpu-core")
        wait_for(lambda: "registered with the planner" in log.read_text(), "w1")
        for flag in "--data-root", "--output-root":
            assert f"warning stagewright-worker: {flag} {missing}: there is no such directory" in log.read_text()


def test_a_transport_interface_is_one_of_the_machine(tmp_path):
    with Planner(tmp_path) as planner:
        log = planner.worker("w0", "--transport-interface", "no-such-interface0")
        wait_for(lambda: "there is no network interface of that name" in log.read_text(), "the refusal")
        log = planner.worker("w1", "--transport-interface", "lo")
        wait_for(lambda: "registered with the planner" in log.read_text(), "w1")
