"""The short form of scripts/fuzz.sh rpc: some rounds over every RPC."""

import rpc_fuzz
from service import Planner


def test_the_planner_answers_whatever_it_is_sent(tmp_path):
    with Planner(tmp_path) as planner:
        fuzzer = rpc_fuzz.Fuzzer(planner, seed=5)
        fuzzer.run(lambda rounds: rounds < 7)
        assert planner.process.poll() is None
    assert fuzzer.findings == []
    codes = sum(fuzzer.codes.values(), start=type(fuzzer.codes["Plan"])())
    assert codes["OK"] > 20 and codes["INVALID_ARGUMENT"] > 20, codes  # Neither all right nor all wrong.
