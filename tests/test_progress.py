"""What a watcher is told, and how often."""

from __future__ import annotations

import io

import pytest

from harness.events import EpisodeDone, Finished, IterationDone, Notice, Started
from harness.progress import Progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def _done(seed, success=True):
    return EpisodeDone(seed, 3, "t", "ok" if success is not None else "infra_error", success, None)


def _iteration(k, seconds=2.0, **metrics):
    return IterationDone(
        0, k, 10, {"success": 0.25, "reward": 0.2, "tokens_in": 900.0, "tokens_out": 100.0, **metrics}, seconds
    )


@pytest.fixture
def watched():
    stream, clock = io.StringIO(), Clock()
    return stream, clock, Progress(stream, clock=clock, interval=5.0)


def test_plain_lines_come_at_most_once_an_interval_and_seed(watched):
    stream, clock, progress = watched
    with progress:
        progress.listen(Started(0, 0, 10, 4))
        for k in range(1, 7):
            clock.now += 2.0
            progress.listen(_iteration(k))
    lines = stream.getvalue().splitlines()
    assert lines == [
        "seed 0: iteration 0/10, evaluated 0/4",
        "seed 0: iteration 3/10, success 25.0%, reward 0.200, 500 tokens/s, evaluated 0/4, 0:14 left",
        "seed 0: iteration 6/10, success 25.0%, reward 0.200, 500 tokens/s, evaluated 0/4, 0:08 left",
    ]


def test_seeds_are_timed_apart(watched):
    stream, _, progress = watched
    for seed in (0, 1, 2):
        progress.listen(_done(seed))
    assert [line[:6] for line in stream.getvalue().splitlines()] == ["seed 0", "seed 1", "seed 2"]


def test_a_success_rate_is_over_verdicts(watched):
    stream, clock, progress = watched
    progress.listen(Started(0, 0, 0, 4))
    for success in (True, None, False):
        clock.now += 10
        progress.listen(_done(0, success))
    assert "evaluated 3/4, success 50.0%" in stream.getvalue().splitlines()[-1]


def test_the_time_left_of_an_evaluation_follows_its_speed(watched):
    stream, clock, progress = watched
    progress.listen(Started(0, 0, 0, 100))
    for _ in range(11):
        progress.listen(_done(0))
        clock.now += 6
    # 11 episodes between 0 and 60 s
    assert stream.getvalue().splitlines()[-1].endswith("8:05 left")


def test_what_is_not_known_is_not_guessed(watched):
    stream, _, progress = watched
    progress.listen(_done(0))
    assert stream.getvalue() == "seed 0: evaluated 1, success 100.0%\n"
    progress.listen(IterationDone(1, 1, 2, {}, 0.0))
    assert stream.getvalue().splitlines()[-1] == "seed 1: iteration 1/2, 0:00 left"


def test_the_end_of_a_seed_and_notices_are_always_told(watched):
    stream, _, progress = watched
    progress.listen(Started(0, 10, 10, 1))
    progress.listen(_done(0))
    progress.listen(Notice("rows.jsonl: cut a last line"))
    progress.listen(Finished(0))
    assert stream.getvalue().splitlines()[1:] == [
        "notice: rows.jsonl: cut a last line",
        "seed 0: iteration 10/10, evaluated 1/1, success 100.0%, done",
    ]


def test_a_resumed_seed_goes_on_where_it_was(watched):
    stream, _, progress = watched
    progress.listen(Started(0, 7, 10, 4))
    assert stream.getvalue() == "seed 0: iteration 7/10, evaluated 0/4\n"


def test_a_terminal_gets_a_table_with_every_seed():
    stream, clock = Terminal(), Clock()
    with Progress(stream, clock=clock) as progress:
        progress.listen(Started(0, 0, 10, 4))
        progress.listen(_iteration(4))
        progress.listen(Started(1, 0, 10, 4))
        progress.listen(Notice("a [notice]"))
    told = stream.getvalue()
    for word in ("iteration", "tokens/s", "4/10", "25.0%", "0.200", "500", "0:12", "notice: a [notice]"):
        assert word in told


def test_several_runs_are_told_apart(watched):
    stream, _, progress = watched
    with progress:
        progress.listen(Started(0, 0, 10, 4), "grpo")
        progress.listen(Started(0, 0, 10, 4), "strata")
        progress.listen(Notice("a cut line"), "strata")
        progress.drop("grpo", 0, "the loss is not a number")
    assert stream.getvalue().splitlines() == [
        "grpo, seed 0: iteration 0/10, evaluated 0/4",
        "strata, seed 0: iteration 0/10, evaluated 0/4",
        "notice: strata: a cut line",
        "grpo, seed 0 failed: the loss is not a number",
    ]
    assert list(progress.seeds) == [("strata", 0)]


def test_of_several_runs_a_terminal_shows_those_at_work():
    """Eight methods with five seeds each would not fit on a screen."""
    stream = Terminal()
    with Progress(stream, clock=Clock()) as progress:
        for run in ("grpo", "strata"):
            progress.listen(Started(0, 0, 10, 4), run)
        progress.listen(Finished(0), "grpo")
    shown = stream.getvalue().rpartition("run ")[2]
    assert "strata" in shown
    assert "grpo" not in shown
    assert "1 of 2 seeds that have begun are done" in shown
