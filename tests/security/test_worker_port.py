"""Workers at a port of their own, which clients cannot keep them from."""

import re

import pytest
from service import Planner, certificates, code_of, refused, tls, wait_for

from stagewright.proto import jobs_pb


def worker_address(planner: Planner) -> str:
    return re.search(r"workers on (\S+?),?\s", planner.log()).group(1)


def workers(planner: Planner, *flags: object) -> str:
    result = planner.cli(*flags, "workers", "-o", "json")
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planner")
    with Planner(folder, "--worker-listen", "127.0.0.1:0") as running:
        yield running


def test_workers_come_in_at_their_port(planner):
    planner.worker("w0", planner=worker_address(planner))
    wait_for(lambda: '"w0"' in workers(planner), "w0")


def test_a_worker_at_the_port_of_clients_is_told_where_to_go(planner):
    log = planner.worker("lost")
    wait_for(lambda: "--worker-listen" in log.read_text(), "the worker to say why")
    assert '"lost"' not in workers(planner)


def test_clients_get_nothing_at_the_port_of_workers(planner):
    code, message = code_of(planner.stubs(address=worker_address(planner)).ListJobs, jobs_pb.ListJobsRequest())
    assert code == "UNIMPLEMENTED"
    assert "clients at that of --listen" in message
    assert code_of(planner.stubs().ListJobs, jobs_pb.ListJobsRequest())[0] == "OK"


def test_certificates_are_asked_for_at_both_ports(tmp_path):
    folder = certificates(tmp_path / "certificates", "w0")
    with Planner(tmp_path, *tls(folder, "planner"), "--worker-listen", "127.0.0.1:0") as planner:
        address = worker_address(planner)
        assert code_of(planner.stubs(address=address).ListJobs, jobs_pb.ListJobsRequest())[0] == "UNAVAILABLE"
        planner.worker("clear", planner=address)
        planner.worker("w0", *tls(folder, "w0"), planner=address)
        wait_for(lambda: '"w0"' in workers(planner, *tls(folder, "client")), "w0")
        assert '"clear"' not in workers(planner, *tls(folder, "client"))


def test_the_workers_port_is_as_careful_as_the_clients():
    assert "--insecure" in refused("--listen", "127.0.0.1:0", "--worker-listen", "0.0.0.0:0")
    assert "worker-listen" in refused("--listen", "127.0.0.1:0", "--worker-listen", "nonsense")
