"""Episodes: what costs a step, what is retried, what is never a score, and that worlds are closed."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from harness.env import Env, EnvError, EnvSpec, InfraError
from harness.episode import Episode, EpisodeFailed
from harness.model import Kit, Prompt, Sampling
from harness.models.scripted import ScriptedModel
from harness.types import Observation, Status, StepResult, StopReason, Task, Verdict
from tests.plays import arena, best, episode, play, task, walk, world
from tests.toys import ToyEnv


class Watched(ToyEnv):
    """A corridor that writes down its calls, and fails where it is told to."""

    log: ClassVar[list[tuple[Any, ...]]]
    faults: ClassVar[dict[tuple[Any, ...], list[Exception]]]

    def _note(self, *call: Any) -> None:
        self.log.append((*call,))
        if pending := self.faults.get(call):
            raise pending.pop(0)

    def reset(self, task: Task, *, seed: int) -> Observation:
        self._note("reset")
        return super().reset(task, seed=seed)

    def step(self, action: str) -> StepResult:
        self._note("step", action)
        return super().step(action)

    def verdict(self) -> Verdict:
        self._note("verdict")
        return super().verdict()

    def close(self) -> None:
        self.log.append(("close",))


def watched(*faults: tuple[tuple[Any, ...], Exception], **spec: Any) -> type[Watched]:
    """A class of its own, so that tests share nothing; `faults` are raised in order when a call is made."""
    pending: dict[tuple[Any, ...], list[Exception]] = {}
    for call, error in faults:
        pending.setdefault(call, []).append(error)
    made: EnvSpec = dataclasses.replace(ToyEnv.spec, **spec)
    return type("Watched", (Watched,), {"log": [], "faults": pending, "spec": made})


def scripted(reply: Callable[[str], str] = best) -> ScriptedModel:
    return ScriptedModel(lambda prompt, seed: reply(prompt))


def finish(env: Callable[[], Env], **options: Any) -> Any:
    there = world(scripted(), env=env)
    return play(there, walk(episode(there, **options)))[0]


def steps(there: Any, one: Episode, *actions: str | None) -> list[StepResult]:
    async def main() -> list[StepResult]:
        return [await one.step(action) for action in actions]

    return there.lane.run(main())


# -- steps ------------------------------------------------------------------------------------------------------


def test_a_walk_is_recorded_step_by_step():
    done = finish(ToyEnv)
    assert [step.action for step in done.steps] == ["right", "right", "stop"]
    assert [step.index for step in done.steps] == [1, 2, 3]
    assert [turn.steps for turn in done.turns] == [(1,), (2,), (3,)]
    assert done.steps[0].anchor == done.first.anchor == "You are at cell 0. The goal is cell 2."
    assert done.steps[0].observation.text.startswith("You are at cell 1")
    assert (done.stop, done.verdict, done.reward) == (StopReason.SUCCESS, Verdict(Status.OK, True, 1.0), 1.0)
    assert done.usage.calls == 3
    assert done.usage.tokens_in == sum(len(turn.completion.prompt_ids) for turn in done.turns)


def test_a_malformed_reply_costs_a_step_and_leaves_the_world():
    env = watched()
    there = world(env=env)
    one = episode(there)
    result = steps(there, one, None)[0]
    assert env.log == [("reset",)], "the world has not been touched"
    assert one.steps == 1
    assert one.history[0].malformed
    assert not one.history[0].admissible
    assert result.reward == 0.0
    assert result.info.message == "malformed"
    assert one.observation.text == f"{env().malformed_notice}\n{one.first.text}"
    assert one.observation.anchor == one.first.anchor, "the bare state knows no notices"


def test_notices_are_not_stacked_and_go_away():
    there = world()
    one = episode(there)
    steps(there, one, None)
    once = one.observation.text
    steps(there, one, None, None)
    assert one.observation.text == once
    steps(there, one, "right")
    assert one.observation.text.startswith("You are at cell 1")


def test_a_refused_action_is_no_malformed_reply():
    there = world()
    one = episode(there)
    result = steps(there, one, "left")[0]
    assert not result.info.admissible
    assert one.history[0].action == "left"
    assert not one.history[0].malformed


def test_the_horizon_ends_an_episode_malformed_replies_included():
    there = world(scripted(lambda prompt: "hmm"))
    done = play(there, walk(episode(there, horizon=3)))[0]
    assert len(done.steps) == done.horizon == 3
    assert (done.stop, done.success) == (StopReason.HORIZON, False)


def test_success_in_the_last_step_is_success():
    assert finish(ToyEnv, horizon=3).stop is StopReason.SUCCESS
    assert finish(ToyEnv, horizon=2).stop is StopReason.HORIZON


def test_stopping_elsewhere_is_failure_and_truncation_is_the_horizon():
    there = world(scripted(lambda prompt: "stop"))
    assert play(there, walk(episode(there)))[0].stop is StopReason.FAILURE

    class Cut(ToyEnv):
        def step(self, action: str) -> StepResult:
            return super().step(action)._replace(terminated=False, truncated=True)

    assert finish(Cut).stop is StopReason.HORIZON


def test_a_limit_of_the_environment_stands_beside_the_horizon():
    class Limited(ToyEnv):
        def verdict(self) -> Verdict:
            return Verdict(Status.LIMIT, False, 0.25)

    done = finish(Limited)
    assert (done.stop, done.verdict.status, done.score) == (StopReason.LIMIT, Status.LIMIT, 0.25)


def test_closing_early_is_abandoning():
    there = world()
    one = episode(there)
    assert play(there, one.close())[0].stop is StopReason.ABANDONED


def test_no_step_after_the_end():
    there = world(scripted(lambda prompt: "stop"))
    one = episode(there)
    steps(there, one, "stop")
    assert one.over
    with pytest.raises(RuntimeError, match="is over"):
        steps(there, one, "left")
    play(there, one.close())
    for action in ("left", None):
        with pytest.raises(RuntimeError):
            steps(there, one, action)


def test_closing_twice_is_an_error_and_releasing_twice_is_not():
    env = watched()
    there = world(env=env)
    one = episode(there)
    there.lane.run(one.close())
    with pytest.raises(RuntimeError, match="closed already"):
        there.lane.run(one.close())
    one.release()
    one.release()
    assert env.log == [("reset",), ("verdict",), ("close",)], "one verdict, one close"


# -- asking -----------------------------------------------------------------------------------------------------


def test_every_call_has_a_seed_of_its_own():
    seeds: list[int] = []
    model = ScriptedModel(lambda prompt, seed: seeds.append(seed) or "right")
    there = world(model)

    async def asks(one: Episode) -> None:
        await one.ask(Prompt.user("first"))
        await one.ask(Prompt.user("first"))  # another ordinal
        await one.ask(Prompt.user("first"), role="judge")
        await one.step("right")
        await one.ask(Prompt.user("first"))

    play(there, *(asks(one) for one in arena(there).episodes(task(), 2)))
    assert len(set(seeds)) == len(seeds) == 8


def test_only_the_policy_in_training_is_trainable():
    there = world(scripted())

    async def asks(one: Episode) -> Any:
        await one.ask(Prompt.user(one.observation.text))
        await one.ask(Prompt.user(one.observation.text, kind="judgment"), role="judge", sampling=Sampling(max_tokens=3))
        return (await one.close()).turns

    for phase, expected in (("train", [True, False]), ("eval", [False, False]), ("validation", [False, False])):
        turns = play(there, asks(episode(there, phase=phase)))[0]
        assert [turn.trainable for turn in turns] == expected
    assert [(turn.role, turn.kind, turn.token_limit) for turn in turns] == [
        ("policy", "action", 40),
        ("judge", "judgment", 3),
    ]


def test_a_step_belongs_to_the_last_turn_of_the_policy():
    """Not to the judge that was asked in between: its row would have no step, and so no format penalty."""
    there = world(scripted(lambda prompt: "right"))

    async def asks(one: Episode) -> Any:
        await one.ask(Prompt.user("plan", kind="judgment"), role="judge")
        await one.step("right")
        await one.ask(Prompt.user("go"))
        await one.ask(Prompt.user("good?", kind="judgment"), role="judge")
        await one.step("right")
        await one.step(None)
        return (await one.close()).turns

    turns = play(there, asks(episode(there)))[0]
    assert [(turn.role, turn.steps) for turn in turns] == [("judge", ()), ("policy", (2, 3)), ("judge", ())]


def test_roles_are_answered_by_their_models():
    policy, judge = ScriptedModel(lambda *_: "right"), ScriptedModel(lambda *_: "guilty")
    there = world(kit=Kit({"policy": policy, "judge": judge}))

    async def asks(one: Episode) -> list[str]:
        return [await one.ask(Prompt.user("?"), role=role) for role in ("judge", "policy", "inducer")]

    assert play(there, asks(episode(there)))[0] == ["guilty", "right", "right"]


def test_a_model_that_fails_twice_fails_the_episode_without_a_score():
    there = world(ScriptedModel([InfraError("server gone")] * 2))
    with pytest.raises(InfraError, match="server gone"):
        play(there, walk(episode(there)))


# -- failures of the world --------------------------------------------------------------------------------------


def test_a_failed_step_is_retried_in_a_new_world_that_replays_what_was_done():
    env = watched((("step", "stop"), EnvError("browser crashed")))
    done = finish(env)
    assert done.success
    assert len(done.steps) == 3, "the retry costs no step"
    assert env.log == [
        ("reset",), ("step", "right"), ("step", "right"), ("step", "stop"), ("close",),
        ("reset",), ("step", "right"), ("step", "right"), ("step", "stop"), ("verdict",), ("close",),
    ]  # fmt: skip


def test_malformed_steps_are_not_replayed():
    env = watched((("step", "right"), EnvError("crash")))
    there = world(env=env)
    one = episode(there)
    steps(there, one, None, "right")
    assert env.log == [("reset",), ("step", "right"), ("close",), ("reset",), ("step", "right")]
    assert one.observation.text.startswith("You are at cell 1")


@pytest.mark.parametrize(("error", "status"), [(EnvError, Status.ENV_ERROR), (InfraError, Status.INFRA_ERROR)])
@pytest.mark.parametrize("call", [("reset",), ("step", "right"), ("verdict",)])
def test_a_second_failure_fails_the_episode_with_its_status(call, error, status):
    env = watched((call, error("first")), (call, error("second")))
    with pytest.raises(EpisodeFailed, match="second") as failed:
        finish(env)
    assert failed.value.status is status
    opened, closed = env.log.count(("reset",)), env.log.count(("close",))
    assert opened == closed, "every world that was opened is closed"


@pytest.mark.parametrize("call", [("reset",), ("verdict",)])
def test_opening_and_verdict_get_one_more_try(call):
    assert finish(watched((call, EnvError("once")))).success


def test_a_shared_site_is_not_acted_on_twice():
    env = watched((("step", "right"), EnvError("lost")), state="shared")
    with pytest.raises(EpisodeFailed, match="lost") as failed:
        finish(env)
    assert failed.value.status is Status.ENV_ERROR
    assert env.log == [("reset",), ("step", "right"), ("close",)]


def test_a_verdict_without_a_verdict_is_a_failure_never_a_zero():
    class Lost(ToyEnv):
        def verdict(self) -> Verdict:
            return Verdict(Status.INFRA_ERROR, None, None, reason="evaluator unreachable")

    with pytest.raises(EpisodeFailed, match="evaluator unreachable") as failed:
        finish(Lost)
    assert failed.value.status is Status.INFRA_ERROR


def test_a_fault_of_the_program_is_no_failure_of_the_world():
    env = watched((("step", "right"), KeyError("typo")))
    with pytest.raises(KeyError, match="typo") as raised:
        finish(env)
    assert env.log.count(("close",)) == 1
    assert raised.value.__notes__ == ["in environment 'toy', task 'train-0-2', step 1"]


@pytest.mark.parametrize(("call", "step"), [(("reset",), 1), (("step", "stop"), 3), (("verdict",), 4)])
def test_a_fault_of_the_program_names_the_task_wherever_it_is(call, step):
    with pytest.raises(ZeroDivisionError) as raised:
        finish(watched((call, ZeroDivisionError())))
    assert raised.value.__notes__ == [f"in environment 'toy', task 'train-0-2', step {step}"]


def test_a_failure_survives_a_process_boundary():
    """A worker's error reaches the user pickled; rebuilt from the reason alone it would break the pool."""
    again = pickle.loads(pickle.dumps(EpisodeFailed(Status.ENV_ERROR, "no display")))
    assert (type(again), again.status, str(again)) == (EpisodeFailed, Status.ENV_ERROR, "no display")


# -- threads ----------------------------------------------------------------------------------------------------


def test_a_world_with_a_thread_of_its_own_is_never_touched_by_another():
    threads: set[int] = set()

    class Own(Watched):
        log: ClassVar[list[Any]] = []
        faults: ClassVar[dict[Any, Any]] = {("step", "stop"): [EnvError("once")]}

        def __init__(self) -> None:
            super().__init__()
            threads.add(threading.get_ident())

        def _note(self, *call: Any) -> None:
            threads.add(threading.get_ident())
            super()._note(*call)

        def close(self) -> None:
            threads.add(threading.get_ident())
            super().close()

    with ThreadPoolExecutor(1) as executor:
        there = world(scripted(), env=Own, executor=executor)
        first, second = arena(there).episodes(task(), 2)
        assert second.observation.text == first.observation.text
        assert play(there, walk(first))[0].success  # `play` closes the second one, which nobody walked
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert Own.log.count(("close",)) == Own.log.count(("reset",)) == 3


def test_a_world_that_is_just_being_opened_is_closed_too():
    opening, go = threading.Event(), threading.Event()

    class Slow(Watched):
        log: ClassVar[list[Any]] = []
        faults: ClassVar[dict[Any, Any]] = {}

        def reset(self, task: Task, *, seed: int) -> Observation:
            opening.set()
            go.wait(5)
            return super().reset(task, seed=seed)

    with ThreadPoolExecutor(1) as executor:
        there = world(env=Slow, executor=executor)
        arena(there).episodes(task(), 2)  # the second waits for the thread and is never opened
        opening.wait(5)
        threading.Timer(0.05, go.set).start()
        there.close()
    assert Slow.log == [("reset",), ("close",)]


def test_a_world_that_cannot_be_opened_says_so_whenever_it_is_looked_at():
    env = watched((("reset",), EnvError("a")), (("reset",), EnvError("b")))
    with ThreadPoolExecutor(1) as executor:
        there = world(env=env, executor=executor)
        one = episode(there)
        for _ in range(2):
            with pytest.raises(EpisodeFailed, match="b"):
                _ = one.observation
        there.close()
    assert env.log.count(("close",)) == 2
