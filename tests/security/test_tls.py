"""Who hears and who is heard: TLS, certificates on both sides, new ones while everybody runs."""

import json
import os
import re
import shutil
import subprocess

import pytest
from service import Planner, certificates, code_of, refused, tls, wait_for

import stagewright
from stagewright.proto import jobs_pb


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"), "w0", "w1", "submitter:alice", "viewer:vera")


@pytest.fixture(scope="module")
def planner(tmp_path_factory, folder):
    with Planner(tmp_path_factory.mktemp("planner"), *tls(folder, "planner")) as running:
        yield running


def python_security(folder, name):
    return stagewright.Security(
        tls_ca=folder / "ca.pem", tls_cert=folder / f"{name}.pem", tls_key=folder / f"{name}-key.pem"
    )


def listed_workers(planner, folder):
    answer = planner.stubs(python_security(folder, "client")).ListWorkers(jobs_pb.ListWorkersRequest(), timeout=60)
    return [worker.name for worker in answer.workers]


def test_clients_and_workers_with_certificates_come_in(planner, folder):
    result = planner.cli(*tls(folder, "client"), "workers")
    assert result.returncode == 0, result.stderr
    planner.worker("w0", *tls(folder, "w0"))
    wait_for(lambda: "w0" in listed_workers(planner, folder), "w0")
    assert "TLS, clients show certificates" in planner.log()


def unreached(planner, *flags) -> str:
    """What the command line says where it does not reach the planner: one line, and none of gRPC's own."""
    result = planner.cli(*flags, "workers")
    assert result.returncode == 4 and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_nobody_comes_in_without_one(planner, folder):
    assert "give --tls-ca" in unreached(planner)
    assert "give --tls-cert and --tls-key" in unreached(planner, "--tls-ca", folder / "ca.pem")
    with pytest.raises(stagewright.UnreachableError):
        stagewright.Client(planner.address).workers()
    assert planner.cli(*tls(folder, "client"), "workers").returncode == 0


def test_a_certificate_of_another_authority_is_worth_nothing(planner, folder, tmp_path):
    other = certificates(tmp_path / "other")
    mixed = ["--tls-ca", folder / "ca.pem", *tls(other, "client")[2:]]
    assert f"--tls-cert {other}/client.pem" in unreached(planner, *mixed)
    # Nor does the client believe a planner that its authority has not signed.
    assert f"no authority in --tls-ca {other}/ca.pem, or has expired" in unreached(planner, *tls(other, "client"))


def test_tls_to_a_planner_in_the_clear_is_named(folder, tmp_path):
    with Planner(tmp_path, "--log-format", "json") as planner:
        assert "speaks no TLS" in unreached(planner, *tls(folder, "client"))


def test_a_handshake_that_failed_is_a_line_of_the_log(folder, tmp_path):
    with Planner(tmp_path, *tls(folder, "planner"), "--log-format", "json") as planner:
        unreached(planner)
        wait_for(lambda: "andshake" in planner.log(), "its line")
        assert all(json.loads(line)["program"] == "stagewright-planner" for line in planner.log().splitlines())


def test_a_certificate_names_the_role(planner, folder):
    viewer = planner.stubs(python_security(folder, "vera"))
    assert code_of(viewer.ListJobs, jobs_pb.ListJobsRequest())[0] == "OK"
    code, message = code_of(viewer.CancelJob, jobs_pb.CancelJobRequest(name="jobs/1"))
    assert code == "PERMISSION_DENIED"
    assert '"vera" is a viewer' in message
    result = planner.cli(*tls(folder, "vera"), "cancel", "jobs/1")
    assert result.returncode == 1
    assert "needs a submitter" in result.stderr


def test_a_worker_registers_under_the_name_of_its_certificate_only(planner, folder):
    log = planner.worker("w7", *tls(folder, "w1"))
    wait_for(lambda: 'may not register as "w7"' in log.read_text(), "the refusal")
    assert "w7" not in listed_workers(planner, folder)
    log = planner.worker("w8", *tls(folder, "alice"))
    wait_for(lambda: "needs a worker" in log.read_text(), "the refusal")


def test_new_certificates_hold_without_a_restart_and_bad_ones_do_not(tmp_path):
    old, new = certificates(tmp_path / "old"), certificates(tmp_path / "new")
    live = tmp_path / "live"
    shutil.copytree(old, live)
    with Planner(tmp_path, *tls(live, "planner")) as planner:
        assert planner.cli(*tls(old, "client"), "workers").returncode == 0
        assert planner.cli(*tls(new, "client"), "workers").returncode == 4
        # Bad ones leave what they said before.
        (live / "planner-key.pem").write_text("nonsense\n")
        wait_for(lambda: re.search("planner-key.pem: .* stays valid", planner.log()), "a warning")
        assert planner.cli(*tls(old, "client"), "workers").returncode == 0
        for file in new.iterdir():
            shutil.copy(file, live)
        wait_for(lambda: planner.cli(*tls(new, "client"), "workers").returncode == 0, "the new certificates")
        assert planner.cli(*tls(old, "client"), "workers").returncode == 4


def test_a_planner_that_others_reach_says_what_it_needs():
    message = refused("--listen", "0.0.0.0:0")
    assert "--tls-cert" in message
    assert "--insecure" in message
    assert "tokens would travel in the clear" in refused("--listen", "0.0.0.0:0", "--insecure", "--token-file", "/x")


def test_insecure_is_asked_for_by_name(tmp_path):
    with Planner(tmp_path, "--insecure", listen="0.0.0.0:0") as planner:
        assert "in the clear (--insecure)" in planner.log()
        planner.address = planner.address.replace("0.0.0.0", "127.0.0.1")
        assert planner.cli("workers").returncode == 0


def test_tls_without_asking_who_calls_is_asked_for_by_name(folder, tmp_path):
    server_only = tls(folder, "planner")[2:]
    for flags in (["--listen", "0.0.0.0:0"], ["--listen", "127.0.0.1:0", "--worker-listen", "0.0.0.0:0"]):
        message = refused(*flags, *server_only)
        assert f"{flags[-2]} 0.0.0.0:0: other machines reach it, and nobody is asked who they are" in message
        assert "--insecure" in message
    (folder / "tokens").write_text("sixteen-characters-or-more operator olga\n")
    for flags, told in ((["--insecure"], "whoever reaches it may do everything"),
                        (["--token-file", folder / "tokens"], "TLS, tokens")):  # fmt: skip
        with Planner(tmp_path, *server_only, *flags, listen="0.0.0.0:0") as planner:
            wait_for(lambda planner=planner, told=told: told in planner.log(), told)
    with Planner(tmp_path, *server_only) as planner:  # This machine's users, as in the clear.
        wait_for(lambda: "TLS; whoever reaches it may do everything" in planner.log(), "its word on security")


def test_files_that_are_none_are_named(folder, tmp_path):
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    planner, key = folder / "planner.pem", folder / "planner-key.pem"
    empty, fifo = tmp_path / "empty.pem", tmp_path / "fifo.pem"
    empty.write_text("")
    os.mkfifo(fifo)
    cases = [
        (["--tls-cert", empty, "--tls-key", key], "empty.pem: no certificate in PEM"),
        (["--tls-cert", planner, "--tls-key", fifo], "fifo.pem: not a regular file but a FIFO"),
        (["--tls-cert", planner], "--tls-cert needs --tls-key"),
        (["--tls-key", key], "--tls-key needs --tls-cert"),
        (["--tls-ca", folder / "ca.pem"], "--tls-ca needs --tls-cert"),
        (["--tls-cert", "/nowhere", "--tls-key", key], "--tls-cert /nowhere: No such file"),
        (["--tls-cert", broken, "--tls-key", key], "broken.pem: no certificate in PEM"),
        (["--tls-cert", planner, "--tls-key", folder / "w0-key.pem"], "w0-key.pem: it is not the key of --tls-cert"),
        (["--tls-cert", planner, "--tls-key", planner], "planner.pem: no key in PEM"),
    ]
    for flags, message in cases:
        assert message in refused("--listen", "127.0.0.1:0", *flags), flags


def test_files_are_read_as_editors_write_them(folder, tmp_path):
    flags = []
    for flag, name in [("--tls-ca", "ca"), ("--tls-cert", "planner"), ("--tls-key", "planner-key")]:
        written = tmp_path / f"{name}.pem"
        written.write_bytes(b"\xef\xbb\xbf" + (folder / f"{name}.pem").read_bytes().replace(b"\n", b"\r\n"))
        flags += [flag, written]
    with Planner(tmp_path, *flags) as planner:
        listed = planner.cli(*tls(folder, "client"), "jobs")
        assert listed.returncode == 0, listed.stderr


def expire(folder, name, out):
    """A certificate like that of `name`, signed by itself, whose time is over."""
    subprocess.run(
        ["openssl", "x509", "-in", folder / f"{name}.pem", "-signkey", folder / f"{name}-key.pem", "-days", "-1",
         "-out", out], check=True, capture_output=True,
    )  # fmt: skip


def test_an_expired_certificate_is_refused_at_the_start(tmp_path):
    folder = certificates(tmp_path)
    expire(folder, "planner", folder / "planner.pem")
    assert "planner.pem: it has expired" in refused("--listen", "127.0.0.1:0", *tls(folder, "planner"))


def test_of_several_authorities_one_has_to_hold(folder, tmp_path):
    expired, both = tmp_path / "expired.pem", tmp_path / "both.pem"
    expire(folder, "planner", expired)
    both.write_text(expired.read_text() + (folder / "ca.pem").read_text())
    own = tls(folder, "planner")[2:]
    with Planner(tmp_path, *own, "--tls-ca", both) as planner:
        assert planner.cli(*tls(folder, "client")[2:], "--tls-ca", both, "workers").returncode == 0
    both.write_text(2 * expired.read_text())
    assert "both.pem: all certificates in it have expired" in refused("--listen", "127.0.0.1:0", *own, "--tls-ca", both)


def test_clients_do_not_speak_to_other_machines_in_the_clear(planner, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token-0123456789\n")
    result = planner.cli("workers", address="planner.example.org:7070")
    assert result.returncode == 1
    assert "--tls-ca" in result.stderr
    assert result.stderr.count("\n") == 1
    result = planner.cli("--insecure", "--token-file", token, "workers", address="planner.example.org:7070")
    assert "could read the token" in result.stderr
    log = planner.worker("w9", planner="planner.example.org:7070")
    wait_for(lambda: "--tls-ca" in log.read_text(), "the refusal")
    with pytest.raises(stagewright.RefusedError, match="another machine"):
        stagewright.Client("planner.example.org:7070")
