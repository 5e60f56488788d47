"""From demonstrations to lessons: a cloned policy has seen exactly the prompts that the methods will send."""

from __future__ import annotations

import pytest

from harness import registry
from harness.arena import Arena, World
from harness.batching import Lane
from harness.cloning import lessons
from harness.config import resolve
from harness.demonstration import Demonstration, DemonstrationStep
from harness.model import Kit, Sampling
from harness.models.scripted import ScriptedModel
from harness.types import Observation, Status, Task, Verdict
from tests.toys import ToyEnv

pytestmark = pytest.mark.usefixtures("toys")
SEEN = Observation("seen", "seen")


def demonstration(task: Task, actions: list[str], *, slips: tuple[int, ...] = ()) -> Demonstration:
    steps = tuple(
        DemonstrationStep(SEEN, action, "why", follows_strategy=i not in slips, forward=i not in slips)
        for i, action in enumerate(actions, 1)
    )
    return Demonstration(task, "go right", steps, Verdict(Status.OK, True, 1.0))


def config(method: str, *overrides: str):
    return resolve(method=method, env="toy", models={"policy": "toy"}, view="compact", overrides=overrides)


TASKS = ToyEnv().tasks("train")[:2]
SHOWN = [demonstration(TASKS[0], ["right", "stop"]), demonstration(TASKS[1], ["left", "right", "stop"], slips=(1, 3))]


def test_actions_are_taught_as_the_method_asks_for_them():
    taught = lessons(config("grpo"), SHOWN, lambda: ToyEnv(view="compact"))
    assert [lesson.kind for lesson in taught] == ["action"] * 5
    assert [lesson.reply for lesson in taught] == [
        f"<action> {action} </action>" for action in ("right", "stop", "left", "right", "stop")
    ]
    assert taught[0].prompt.startswith("act Walk from cell")
    assert taught[1].prompt.endswith("did right ;")


def test_strategies_and_judgments_are_taught_too():
    taught = lessons(config("strata"), SHOWN, lambda: ToyEnv(view="compact"))
    assert [lesson.kind for lesson in taught].count("strategy") == 2
    assert {lesson.reply for lesson in taught if lesson.kind == "strategy"} == {"<strategy> go right </strategy>"}
    judgments = [lesson for lesson in taught if lesson.kind == "judgment"]
    assert [lesson.reply for lesson in judgments] == ["<judgment> [ ] </judgment>", "<judgment> [ 1 3 ] </judgment>"]
    assert all(lesson.prompt.startswith("judge go right ;") for lesson in judgments)
    actions = [lesson for lesson in taught if lesson.kind == "action"]
    assert all(lesson.prompt.startswith("follow go right ;") for lesson in actions)


@pytest.mark.parametrize("name", ["grpo", "strata"])
def test_the_prompts_are_those_that_the_method_sends(name):
    """Played again by the method itself with a model that answers as was taught."""
    run = config(name)
    taught = {lesson.prompt: lesson.reply for lesson in lessons(run, SHOWN, lambda: ToyEnv(view="compact"))}
    model = ScriptedModel(lambda prompt, seed: taught[prompt])
    kit = Kit({"policy": model})
    method = registry.load_method(name)(run.method_config(), spec=ToyEnv.spec, view="compact", seed=0)
    world = World(ToyEnv.spec, lambda: ToyEnv(view="compact"), Lane(), kit, 0)
    arena = Arena(world, phase="eval", iteration=0, slot=0, sampling=Sampling(max_tokens=40))
    done = world.lane.run(method.solve(arena.episodes(TASKS[0], 1, horizon=2)[0]))
    assert [step.action for step in done.steps] == ["right", "stop"]


def test_many_demonstrations_are_played_in_chunks(monkeypatch):
    monkeypatch.setattr("harness.cloning.LANE", 2)
    taught = lessons(config("grpo"), SHOWN * 3, lambda: ToyEnv(view="compact"))
    assert len(taught) == 15


@pytest.mark.parametrize("name", ["grpo", "strata"])
def test_lessons_are_counted_in_words_as_the_clone_will_count_them(name):
    """An estimate of more tokens than words would drop steps that the policy is later shown."""
    taught = lessons(config(name), SHOWN, lambda: ToyEnv(view="compact"))
    longest = max(len(lesson.prompt.split()) for lesson in taught)
    tight = config(name, f"max_prompt={longest}")
    assert lessons(tight, SHOWN, lambda: ToyEnv(view="compact")) == taught
