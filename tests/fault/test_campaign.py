"""A campaign that is interrupted still says what it found."""

import os
import signal
import threading

import planner_kills
import pytest
from campaign import Campaign


def test_a_line_tells_what_is_known_every_twenty_faults(capsys):
    with Campaign(50, lambda: {"calls": 7, "wrong": 0}) as campaign:
        for _ in campaign:
            pass
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" faults in ")[0] for line in lines] == ["20 of 50", "40 of 50"]
    assert lines[0].endswith(" s: calls 7, wrong 0")
    campaign.end([])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_verdict_follows(capsys, number):
    before = signal.getsignal(number)
    with Campaign(50, lambda: {"calls": 7}) as campaign:
        for i in campaign:
            if i == 3:
                os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    assert (campaign.done, campaign.interrupted) == (3, True)
    assert "3 of 50 faults in " in capsys.readouterr().err
    with pytest.raises(SystemExit, match="interrupted after 3 of 50 faults\njob 1 is lost"):
        campaign.end(["job 1 is lost"])


def test_what_clients_were_told_until_a_signal_is_checked():
    timer = threading.Timer(8, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    found = planner_kills.run(kills=10_000, seed=11)
    timer.join()
    assert found["campaign"].interrupted
    assert found["wrong"] == []
    assert found["calls"] > 0
