"""The environment: tasks, episodes, verdicts, and its own gold and wrong answers."""

import json
import time
from dataclasses import replace

import pytest

from envs.webshop.env import WebShop, open_world
from envs.webshop.nouns import LexiconNouns
from harness.env import DataError
from harness.types import SPLITS, Status

VIEWS = WebShop.spec.views


def play(env, task, actions):
    """Observations and results of an episode."""
    first = env.reset(task, seed=0)
    results = [env.step(action) for action in actions]
    return first, results


@pytest.fixture(params=VIEWS)
def env(request):
    return WebShop(view=request.param)


def test_tasks_are_those_of_the_protocol(env):
    test = env.tasks("test")
    assert (len(test), len(env.tasks("validation"))) == (500, 500)
    assert len(env.tasks("train")) >= 3000
    assert (test[0].id, test[499].id, test[0].split, test[0].env) == ("test-0001", "test-0500", "test", "webshop")
    assert len({task.group for task in test}) == 500
    assert len({task.id for split in SPLITS for task in env.tasks(split)}) == sum(len(env.tasks(s)) for s in SPLITS)
    assert env.tasks("test") is test


def test_instructions_are_in_the_words_of_the_view():
    full, compact = WebShop().tasks("test")[0], WebShop(view="compact").tasks("test")[0]
    assert full.id == compact.id
    assert full.instruction == full.payload.instruction
    assert compact.instruction.startswith("goal ")
    assert compact.payload == full.payload


def test_gold_actions_win_and_wrong_ones_do_not(env):
    for task in env.tasks("test")[::10]:
        _, results = play(env, task, env.oracle(task))
        assert all(result.info.admissible for result in results)
        assert [result.terminated for result in results] == [False] * (len(results) - 1) + [True]
        assert len(results) <= env.spec.horizon
        assert [result.reward for result in results] == [0.0] * (len(results) - 1) + [1.0]
        assert (env.verdict().status, env.verdict().success, env.verdict().score) == (Status.OK, True, 1.0)

        _, results = play(env, task, env.wrong(task))
        assert results[-1].terminated
        assert env.verdict().success is False
        assert env.verdict().score == results[-1].reward < 1


def test_nothing_bought_is_worth_nothing(env):
    play(env, env.tasks("test")[0], env.oracle(env.tasks("test")[0])[:-1])
    assert (env.verdict().success, env.verdict().score) == (False, 0.0)


def test_an_episode_is_determined_by_its_actions(env):
    task = env.tasks("test")[3]
    actions = env.oracle(task)
    again = WebShop(view=env.view)
    assert play(env, task, actions) == play(again, task, actions)


@pytest.mark.parametrize("action", ["", "dance", "click[nothing]", "click nothing", "buy", "search[]", "click buy"])
def test_what_the_page_does_not_offer_is_a_no_op(env, action):
    first = env.reset(env.tasks("test")[0], seed=0)
    observation, reward, terminated, truncated, info = env.step(action)
    assert (observation, reward, terminated, truncated) == (first, 0.0, False, False)
    assert not info.admissible
    assert info.message


def test_each_view_reads_its_own_actions():
    full, compact = WebShop(), WebShop(view="compact")
    for env, own, other in ((full, "search[mug]", "search mug"), (compact, "search mug", "search[mug]")):
        env.reset(env.tasks("test")[0], seed=0)
        assert not env.step(other).info.admissible
        assert env.step(own).observation.page == "results"


def test_admissible_actions_are_admitted(env):
    task = env.tasks("test")[0]
    path = env.oracle(task)
    for length in range(len(path)):
        first, results = play(env, task, path[:length])
        for action in (results[-1].observation if results else first).admissible_actions:
            play(env, task, path[:length])
            assert env.step(action).info.admissible, action
    _, results = play(env, task, path)
    assert results[-1].observation.admissible_actions == ()


def test_equal_anchors_mean_equal_states(env):
    """WebShop's text does not show chosen options; without them an item page would be one state before and after."""
    task = next(task for task in env.tasks("test") if len(task.payload.options) == 2)
    path = list(env.oracle(task))
    first, second = path[-3:-1]
    _, results = play(env, task, path[:-1])
    _, swapped = play(env, task, [*path[:-3], second, first])
    anchors = [result.observation.anchor for result in results]
    assert len(set(anchors)) == len(anchors)
    assert swapped[-1].observation.anchor == anchors[-1]
    features = "click[features]" if env.view == "full" else "click features"
    play(env, task, path[:-3])
    before = env.step(features).observation.anchor
    play(env, task, path[:-1])
    assert env.step(features).observation.anchor != before


def test_a_finished_episode_and_one_not_begun_take_no_action(env):
    with pytest.raises(RuntimeError, match="reset"):
        env.step("search[mug]")
    task = env.tasks("test")[0]
    play(env, task, env.oracle(task))
    with pytest.raises(RuntimeError, match="over"):
        env.step("search[mug]")
    env.reset(task, seed=1)
    assert env.verdict().score == 0.0


def test_foreign_tasks_are_refused(env):
    with pytest.raises(ValueError, match="no WebShop goal"):
        env.reset(replace(env.tasks("test")[0], payload=None), seed=0)


def test_closing_twice_is_fine(env):
    env.close()
    env.close()


def test_an_unknown_view_is_refused():
    with pytest.raises(ValueError, match="full, compact"):
        WebShop(view="html")


def test_the_malformed_notice_is_short_in_compact():
    assert WebShop(view="compact").malformed_notice == "invalid reply"
    assert "search[keywords]" in WebShop().malformed_notice


def test_data_are_loaded_once_and_steps_are_fast():
    """Processor time; a step takes about 0.3 ms on an idle core."""
    open_world()
    start = time.process_time()
    envs = [WebShop(view="compact") for _ in range(100)]
    assert time.process_time() - start < 0.1
    assert all(env.world is envs[0].world for env in envs)
    env, steps = envs[0], 0
    start = time.process_time()
    for task in env.tasks("test")[:50]:
        env.reset(task, seed=0)
        for action in ("search mug", "click r1", "click features", "click prev", "click buy"):
            env.step(action)
            steps += 1
    assert (time.process_time() - start) / steps < 0.01


@pytest.fixture
def official(tmp_path, monkeypatch):
    """Forty products in the official files, and a word list in place of spaCy."""
    monkeypatch.setattr("envs.webshop.env.SpacyNouns", lambda: LexiconNouns(["shirt"]))
    products = [
        {
            "asin": f"B{number:09d}", "name": f"Norvik Shirt No. {number}, Soft", "full_description": "A shirt.",
            "small_description": ["soft"], "pricing": "$12.50", "images": ["x.jpg"], "category": "fashion",
            "product_category": "Clothing › Shirts", "query": "soft shirt", "product_information": {},
            "customization_options": {"Size": [{"value": value, "image": None} for value in ("X-Large/Wide", "Small")]},
        }
        for number in range(40)
    ]  # fmt: skip
    instructions = {
        p["asin"]: {"attributes": ["soft"], "instruction": "i want a soft shirt", "instruction_attributes": ["soft"]}
        for p in products
    }
    (tmp_path / "items_shuffle_1000.json").write_text(json.dumps(products))
    (tmp_path / "items_ins_v2_1000.json").write_text(json.dumps(instructions))
    return str(tmp_path)


@pytest.mark.parametrize("view", VIEWS)
def test_official_data_can_be_played(official, view):
    env = WebShop(view=view, data=official)
    tasks = env.tasks("test")
    assert tasks
    assert env.data_digest != WebShop().data_digest
    for task in tasks[:10]:
        assert env.oracle(task) is not None
        play(env, task, env.oracle(task))
        assert env.verdict().score == 1.0


def test_missing_official_data_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("envs.webshop.env.SpacyNouns", lambda: LexiconNouns([]))
    with pytest.raises(DataError, match=r"holds no items_\w+"):
        WebShop(data=str(tmp_path))
