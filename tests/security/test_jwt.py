"""Tokens that an identity provider signs: who calls with them, which are refused, and what becomes of new keys."""

import time

import pytest
from identity_provider import IdentityProvider, jwt_flags, key_set
from service import Planner, code_of, refused, tiny_job, wait_for

import stagewright
from stagewright.proto import jobs_pb


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jwt")


@pytest.fixture(scope="module")
def provider(folder):
    return IdentityProvider(folder)


@pytest.fixture(scope="module")
def planner(tmp_path_factory, folder, provider):
    keys = folder / "keys.json"
    keys.write_text(key_set(provider))
    with Planner(tmp_path_factory.mktemp("planner"), *jwt_flags(keys)) as running:
        yield running


@pytest.fixture
def stubs(planner, tmp_path):
    def with_token(token):
        file = tmp_path / "token"
        file.write_text(token + "\n")
        return planner.stubs(stagewright.Security(token_file=file))

    return with_token


def test_the_subject_is_the_caller_and_the_claim_its_role(planner, stubs, provider):
    spec = tiny_job(owner="olga")
    job = stubs(provider.token("sam", "submitter")).SubmitJob(jobs_pb.SubmitJobRequest(spec=spec), timeout=60).job
    assert (job.spec.owner, job.spec.tenant) == ("sam", "")
    ending = jobs_pb.CancelJobRequest(name=job.name)
    code, message = code_of(stubs(provider.token("vera", "viewer")).CancelJob, ending)
    assert code == "PERMISSION_DENIED"
    assert '"vera" is a viewer' in message
    assert code_of(stubs(provider.token("sally", "submitter")).CancelJob, ending)[0] == "PERMISSION_DENIED"
    assert code_of(stubs(provider.token("olga", "viewer", "operator")).CancelJob, ending)[0] == "OK"
    assert code_of(stubs(provider.token("nobody")).ListJobs, jobs_pb.ListJobsRequest())[0] == "PERMISSION_DENIED"
    assert "audit who=sam" in planner.log()


def test_a_claim_names_the_tenant_of_all_but_workers(tmp_path, provider):
    (tmp_path / "keys.json").write_text(key_set(provider))
    with Planner(tmp_path, *jwt_flags(tmp_path / "keys.json"), "--jwt-tenant-claim", "org.team") as planner:

        def called(*token, **claims):
            (tmp_path / token[0]).write_text(provider.token(*token, **claims))
            return planner.stubs(stagewright.Security(token_file=tmp_path / token[0]))

        member = called("sam", "submitter", org={"team": "vision"})
        assert member.SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job()), timeout=60).job.spec.tenant == "vision"
        without = called("olga", "operator")
        code, message = code_of(without.SubmitJob, jobs_pb.SubmitJobRequest(spec=tiny_job()))
        assert (code, message) == ("UNAUTHENTICATED", "the token does not name its user's tenant (org.team)")
        called("w0", "worker")
        planner.worker("w0", "--token-file", tmp_path / "w0")
        wait_for(lambda: member.ListWorkers(jobs_pb.ListWorkersRequest(), timeout=60).workers, "the worker")


def test_other_tokens_are_refused_in_one_way(planner, stubs, folder, provider):
    good = provider.token("olga", "operator")
    header, claims, signature = good.split(".")
    stranger = IdentityProvider(folder, "stranger")
    stranger.kid = provider.kid
    unknown = [stranger.token("olga", "operator"), f"{header}.{claims}.", f"{header}.{claims}", "a.b.c", good[:-4],
               provider.token("olga", "operator", algorithm="none"),
               provider.token("olga", "operator", algorithm="HS256")]  # fmt: skip
    listing = jobs_pb.ListJobsRequest()
    for token in unknown:
        assert code_of(stubs(token).ListJobs, listing) == ("UNAUTHENTICATED", "the token is not known"), token
    now = int(time.time())
    wrong = {"has expired": {"exp": now - 120}, "not valid yet": {"nbf": now + 600}, "another issuer": {"iss": "x"},
             "another audience": {"aud": ["x"]}}  # fmt: skip
    for message, change in wrong.items():
        code, said = code_of(stubs(provider.token("olga", "operator", **change)).ListJobs, listing)
        assert code == "UNAUTHENTICATED"
        assert message in said and "example.org" not in said
    assert code_of(stubs(good).ListJobs, listing)[0] == "OK"
    assert signature not in planner.log()


def test_a_token_of_the_greatest_length_is_read(stubs, provider):
    """It comes to the planner's own check, not to a limit of what carries it."""
    for length in (8000, 8192):
        token = "header.claims." + "x" * (length - len("header.claims."))
        answer = code_of(stubs(token).ListJobs, jobs_pb.ListJobsRequest())
        assert answer == ("UNAUTHENTICATED", "the token is not known"), length


def test_new_keys_hold_without_a_restart(planner, stubs, folder, provider):
    new = IdentityProvider(folder, "k2")
    listing = jobs_pb.ListJobsRequest()
    assert code_of(stubs(new.token("vera", "viewer")).ListJobs, listing)[0] == "UNAUTHENTICATED"
    (folder / "keys.json").write_text(key_set(provider, new))
    assert code_of(stubs(new.token("vera", "viewer")).ListJobs, listing)[0] == "OK"
    for bad in ("nonsense", "", '{"keys": []}'):
        (folder / "keys.json").write_text(bad)
        assert code_of(stubs(new.token("vera", "viewer")).ListJobs, listing)[0] == "OK", bad
    (folder / "keys.json").write_text("\ufeff" + key_set(provider, new).replace(",", ",\r\n"))
    assert code_of(stubs(new.token("vera", "viewer")).ListJobs, listing)[0] == "OK"
    assert "what it said before stays valid" in planner.log()
    (folder / "keys.json").write_text(key_set(provider))
    assert code_of(stubs(new.token("vera", "viewer")).ListJobs, listing)[0] == "UNAUTHENTICATED"
    assert code_of(stubs(provider.token("vera", "viewer")).ListJobs, listing)[0] == "OK"


def test_a_worker_comes_in_with_a_signed_token(planner, stubs, tmp_path, provider):
    token = tmp_path / "worker-token"
    token.write_text(provider.token("w0", "worker"))
    planner.worker("w0", "--token-file", token)
    viewer = stubs(provider.token("vera", "viewer"))
    wait_for(lambda: viewer.ListWorkers(jobs_pb.ListWorkersRequest(), timeout=60).workers, "the worker")


@pytest.mark.parametrize("by", ["flags", "file"])
def test_roles_have_the_providers_names_where_that_is_said(tmp_path, provider, by):
    keys, config = tmp_path / "keys.json", tmp_path / "planner.yaml"
    keys.write_text(key_set(provider))
    config.write_text("jwt-role: [readers=viewer, admins=operator]\n")
    said = ["--jwt-role", "readers=viewer", "--jwt-role", "admins=operator"] if by == "flags" else ["--config", config]
    with Planner(tmp_path, *jwt_flags(keys), *said) as planner:
        for role, code in [("readers", "PERMISSION_DENIED"), ("admins", "NOT_FOUND"), ("operator", "PERMISSION_DENIED")]:
            token = tmp_path / role
            token.write_text(provider.token("olga", role))
            stubs = planner.stubs(stagewright.Security(token_file=token))
            assert code_of(stubs.CancelJob, jobs_pb.CancelJobRequest(name="jobs/7"))[0] == code, role


def test_flags_that_are_wrong_are_named(tmp_path, provider):
    keys, empty = tmp_path / "keys.json", tmp_path / "empty"
    keys.write_text(key_set(provider))
    empty.write_text("")
    cases = [
        (["--jwt-keys", keys, "--jwt-audience", "a"], "--jwt-keys needs --jwt-issuer"),
        (["--jwt-keys", keys, "--jwt-issuer", "i"], "--jwt-keys needs --jwt-audience"),
        (["--jwt-issuer", "i"], "need --jwt-keys"),
        (jwt_flags("/nowhere/keys"), "--jwt-keys /nowhere/keys"),
        (jwt_flags(empty), f"--jwt-keys {empty}: "),
        ([*jwt_flags(keys), "--jwt-role", "admins"], '--jwt-role "admins": expected VALUE=ROLE'),
    ]
    for flags, message in cases:
        assert message in refused("--listen", "127.0.0.1:0", *flags), flags
    message = refused("--listen", "0.0.0.0:0", "--insecure", *jwt_flags(keys))
    assert "--jwt-keys with --insecure: tokens would travel in the clear" in message
