"""Lanes: when a batch leaves, what is in it, and what happens when something goes wrong."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.batching import Lane
from harness.env import InfraError
from harness.model import Model, Prompt, Request, Sampling
from harness.seeding import python_random
from harness.types import Completion


class Recording(Model):
    """Answers with the request's key and remembers the keys of every batch."""

    def __init__(self, *, failures: Sequence[BaseException] = ()) -> None:
        self.batches: list[list[Any]] = []
        self.failures = list(failures)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        self.batches.append([request.key for request in requests])
        if self.failures:
            raise self.failures.pop(0)
        return [Completion(repr(request.key), (), (), "stop") for request in requests]


class Remote(Recording):
    """Answers one call at a time, after a while."""

    in_process: ClassVar[bool] = False

    def __init__(self, *, failures: Sequence[BaseException] = ()) -> None:
        super().__init__(failures=failures)
        self.running = self.most = self.calls = 0

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.002)
        self.running -= 1
        return Completion(prompt.text, (), (), "stop")


async def ask(lane: Lane, model: Model, *key: int, text: str = "?") -> str:
    return (await lane.ask(model, Request(key, Prompt.user(text), Sampling()))).text


@pytest.mark.parametrize("model", [Recording, Remote])
def test_a_lane_that_does_not_run_says_so_when_asked(model):
    """Nobody would ever let the batch go: the caller would wait for ever."""
    lane, other = Lane(), Lane()
    for asks in (asyncio.run, other.run):
        with pytest.raises(RuntimeError, match=r"this lane is not running here; .* inside Lane\.run of the same lane"):
            asks(ask(lane, model(), 1))
    assert lane.run(ask(lane, model(), 1)), "and it can be run"
    with pytest.raises(RuntimeError, match="not running"):
        asyncio.run(ask(lane, model(), 1))


def run(lane: Lane, *coroutines: Any) -> list[Any]:
    async def main() -> list[Any]:
        return await lane.gather(coroutines)

    return lane.run(main())


def test_a_batch_waits_for_those_that_are_still_ready():
    lane, model = Lane(), Recording()

    async def late(n: int) -> str:
        for _ in range(n):  # n turns of the event loop without waiting for anything
            await asyncio.sleep(0)
        return await ask(lane, model, n)

    assert run(lane, *map(late, (3, 0, 7, 1))) == ["(3,)", "(0,)", "(7,)", "(1,)"]
    assert model.batches == [[(0,), (1,), (3,), (7,)]]
    assert (lane.counters.batches, lane.counters.requests, lane.counters.sizes) == (1, 4, [4])


def test_finished_coroutines_leave_the_batches():
    lane, model = Lane(), Recording()

    async def episode(k: int) -> None:
        for step in range(k):
            await ask(lane, model, k, step)

    run(lane, *map(episode, (3, 1, 2)))
    assert model.batches == [[(1, 0), (2, 0), (3, 0)], [(2, 1), (3, 1)], [(3, 2)]]


@given(st.permutations(range(5)))
@settings(max_examples=20)
def test_a_batch_is_sorted_by_key_whoever_asked_first(order):
    lane, model = Lane(), Recording()
    assert run(lane, *(ask(lane, model, k) for k in order)) == [f"({k},)" for k in order]
    assert model.batches == [[(k,) for k in range(5)]]


def test_batches_do_not_depend_on_how_long_env_calls_take():
    """Three rounds of ask and step, steps in threads: one batch a round, however the threads run."""

    def once(attempt: int) -> list[list[Any]]:
        lane, model = Lane(), Recording()
        random = python_random("durations", attempt)
        with ThreadPoolExecutor(4) as executor:

            async def episode(k: int) -> None:
                for step in range(3):
                    await ask(lane, model, k, step)
                    if (k + step) % 3:
                        await lane.call(executor, time.sleep, random.random() / 100)

            run(lane, *map(episode, range(8)))
        return model.batches

    expected = [[(k, step) for k in range(8)] for step in range(3)]
    assert [once(attempt) for attempt in range(4)] == [expected] * 4


def test_errors_of_env_calls_do_not_hold_batches_back():
    lane, model = Lane(), Recording()
    with ThreadPoolExecutor(1) as executor:

        async def fails() -> str:
            with pytest.raises(ZeroDivisionError):
                await lane.call(executor, lambda: 1 // 0)
            return await ask(lane, model, 1)

        assert run(lane, fails(), ask(lane, model, 0)) == ["(1,)", "(0,)"]
    assert model.batches == [[(0,), (1,)]]


def test_nested_gathers_share_batches():
    lane, model = Lane(), Recording()

    async def branch(i: int) -> list[Any]:
        return await lane.gather(ask(lane, model, i, j) for j in range(2))

    assert run(lane, *map(branch, range(3)))[2] == ["(2, 0)", "(2, 1)"]
    assert model.batches == [[(i, j) for i in range(3) for j in range(2)]]


def test_two_models_get_a_batch_each_the_one_with_the_smallest_key_first():
    lane, policy, judge = Lane(), Recording(), Recording()
    first: list[str] = []
    for name, model in (("policy", policy), ("judge", judge)):
        plain = model.generate
        model.generate = lambda requests, name=name, plain=plain: first.append(name) or plain(requests)
    run(lane, ask(lane, judge, 3), ask(lane, policy, 2), ask(lane, judge, 1), ask(lane, policy, 4))
    assert policy.batches == [[(2,), (4,)]]
    assert judge.batches == [[(1,), (3,)]]
    assert first == ["judge", "policy"]


def test_an_error_reaches_those_who_asked_and_nobody_else():
    lane, bad, good = Lane(), Recording(failures=[ValueError("bad request")]), Recording()
    results = run(lane, ask(lane, bad, 0), ask(lane, good, 1), ask(lane, bad, 2))
    assert [type(result) for result in results] == [ValueError, str, ValueError]


@pytest.mark.parametrize(("failures", "survives"), [(1, True), (2, False)])
def test_a_failed_engine_gets_one_more_try(failures, survives):
    lane, model = Lane(), Recording(failures=[InfraError("engine")] * failures)
    results = run(lane, ask(lane, model, 0), ask(lane, model, 1))
    assert all(isinstance(result, str) is survives for result in results)
    assert model.batches == [[(0,), (1,)]] * 2, "the retry is the same call"


def test_ctrl_c_leaves_no_coroutine_behind():
    lane, model = Lane(), Recording(failures=[KeyboardInterrupt()])
    events: list[str] = []

    async def episode(k: int) -> None:
        try:
            await ask(lane, model, k)
            events.append("answered")
        finally:
            events.append(f"closed {k}")

    with pytest.raises(KeyboardInterrupt):
        run(lane, *map(episode, range(3)))
    assert sorted(events) == ["closed 0", "closed 1", "closed 2"]
    assert run(lane, ask(lane, model, 9)) == ["(9,)"], "the lane can be used again"
    assert model.batches[-1] == [(9,)], "no request of the interrupted run is left"


def test_ctrl_c_inside_an_episode_closes_the_others():
    lane, model = Lane(), Recording()
    closed: list[int] = []

    async def waits(k: int) -> None:
        try:
            await ask(lane, model, k)
            await asyncio.sleep(60)
        finally:
            closed.append(k)

    async def interrupted() -> None:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(lane, waits(0), interrupted(), waits(1))
    assert sorted(closed) == [0, 1]
    assert time.monotonic() - started < 5


def test_ctrl_c_inside_a_group_is_raised_once_and_nothing_is_complained_of(caplog):
    """A task group that Ctrl-C came through raises it again when it is cancelled, through the loop that cleans up."""
    lane, closed = Lane(), []

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def interrupted() -> None:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits())
            group.create_task(interrupted())
            group.create_task(waits())

    with pytest.raises(KeyboardInterrupt):
        lane.run(main())
    gc.collect()
    assert closed == [True, True]
    assert caplog.messages == []


def test_what_is_left_running_is_cancelled_when_the_main_coroutine_ends():
    lane, closed = Lane(), []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def main() -> str:
        main.task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        return "done"

    assert lane.run(main()) == "done"
    assert closed == [True]


def test_a_cancelled_request_is_not_sent():
    lane, model = Lane(), Recording()

    async def main() -> str:
        task = asyncio.create_task(ask(lane, model, 0))
        await asyncio.sleep(0)
        task.cancel()
        return await ask(lane, model, 1)

    assert lane.run(main()) == "(1,)"
    assert model.batches == [[(1,)]]


def test_remote_calls_bypass_the_batch_and_keep_to_the_limit():
    lane, remote = Lane(remote_limit=3), Remote()
    assert run(lane, *(ask(lane, remote, k, text=f"{k}") for k in range(9))) == [f"{k}" for k in range(9)]
    assert remote.batches == []
    assert remote.most == 3
    assert lane.counters.batches == 0


@pytest.mark.parametrize(("failures", "expected"), [(1, str), (2, InfraError)])
def test_remote_calls_get_one_more_try_too(failures, expected):
    lane, remote = Lane(), Remote(failures=[InfraError("server")] * failures)
    assert isinstance(run(lane, ask(lane, remote, 0))[0], expected)
    assert remote.calls == 2
