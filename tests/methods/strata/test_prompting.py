"""StraTA's prompts: the slots and duties of appendix B.2, and the parsing of what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from envs.webshop.env import WebShop
from harness import registry
from harness.arena import World
from harness.batching import Lane
from harness.config import resolve
from harness.errors import InputError
from harness.method import MethodConfig
from harness.model import Kit, ModelContext, Prompt, Request, Sampling
from harness.types import Strategy, Trajectory
from methods.strata.prompting import SLOTS, StrategyPrompts, parse_judgment, parse_strategy
from tests.plays import arena, episode, play, trajectory, walk, world
from tests.toys import ToyEnv

WALK = Strategy("Walk right until the goal.")


def prompts(view: str = "full", *, sees_end: bool = True, **options: Any) -> StrategyPrompts:
    return StrategyPrompts(MethodConfig(**options), ToyEnv.spec, view, judge_sees_end=sees_end)


def asked(view: str = "full") -> dict[str, str]:
    """All three prompts of one episode."""
    there = world()
    one = episode(there)
    one.strategy = WALK
    made = prompts(view)
    texts = {"strategy": made.strategy(one).text, "action": made.action(one).text}
    done = play(there, walk(one))[0]
    return texts | {"judgment": made.judgment(done, WALK).text}


def test_kinds():
    there = world()
    one = episode(there)
    made = prompts()
    assert (made.strategy(one).kind, made.action(one).kind) == ("strategy", "action")
    assert made.judgment(trajectory(0), WALK).kind == "judgment"
    there.close()


@pytest.mark.parametrize("view", ["full", "compact"])
def test_every_prompt_holds_the_task_and_its_slots(view):
    texts = asked(view)
    assert all("Walk from cell 0 to cell 2 and stop." in text for text in texts.values())
    assert not any("{" in text for text in texts.values())
    assert WALK.text not in texts["strategy"]
    assert WALK.text in texts["action"]
    assert WALK.text in texts["judgment"]
    assert set(SLOTS[view]) == {"strategy", "action", "judgment"}


def test_the_strategy_stands_before_the_state_and_binds():
    text = asked()["action"]
    binds = text.index("committed yourself to the following strategy")
    assert binds < text.index(WALK.text) < text.index("What you see now")
    assert "left, right or stop" in text
    assert "<action> and </action>" in text


def test_a_strategy_is_asked_for_with_reasons_and_an_example_from_elsewhere():
    text = asked()["strategy"]
    for duty in ("Think step by step", "followed to the letter", "rely only on what you know now", "<strategy>"):
        assert duty in text
    assert "corridor" not in text[text.index("An example") :]


def test_a_judgment_needs_both_faults_and_shows_an_empty_list_and_an_example():
    text = asked()["judgment"]
    assert "only if both of these hold" in text
    assert "an empty list if there are none" in text
    assert "<judgment>[2, 5]</judgment>" in text
    assert "Step 1: " in text


def test_the_judge_sees_the_end_or_not():
    done = trajectory(0, malformed=[False, False])
    assert prompts().judgment(done, WALK).text.count("Seen: ") == 2
    assert prompts(sees_end=False).judgment(done, WALK).text.count("Seen: ") == 1


def test_compact_judgments_are_short():
    """At mini scale: actions and page names, no observations."""
    text = prompts("compact").judgment(trajectory(0, malformed=[False] * 15), WALK).text
    assert "seen" not in text
    assert len(text.split()) <= 160


def test_fifteen_rambling_actions_pass_the_shipped_policy():
    """36 words are what a reply of 40 tokens can hold as an action; 256 positions hold no fifteen of them."""
    policy = registry.open_model("mini", ModelContext("webshop"))
    made = StrategyPrompts(resolve(method="strata", env="webshop").method_config(), WebShop.spec, "compact")
    kit = Kit({"policy": policy})
    made.setup(kit)
    there = World(WebShop.spec, lambda: WebShop(view="compact"), Lane(), kit, 0)
    one = arena(there, phase="eval").episodes(WebShop(view="compact").tasks("test")[0], 1)[0]
    one.strategy = Strategy(" ".join(["search", "goal", "click"] * 12))
    asked: list[Prompt] = []

    async def main() -> Trajectory:
        while not one.over:
            asked.append(made.action(one))
            await one.ask(asked[-1])
            await one.step("search " + " ".join(["vintage", "mug", "slim", "ceramic", "lamp"] * 7))
        return await one.close()

    done = play(there, main())[0]
    asked.append(made.judgment(done, one.strategy))
    policy.generate([Request((), asked[-1], Sampling(max_tokens=40))])
    for prompt in asked:
        assert policy.count(prompt) <= policy.positions - 40, "room for a reply"
        assert f"{one.strategy.text} ; {one.task.instruction} ; " in prompt.text
    assert asked[-2].text.count("search vintage mug") == 2, "actions are cut before steps are dropped"
    assert "15 results search vintage mug slim" in asked[-1].text
    assert "1 search search" not in asked[-1].text


def test_a_user_may_replace_any_of_them(tmp_path):
    (tmp_path / "compact").mkdir()
    (tmp_path / "compact" / "strategy.txt").write_text("mine {description} {context}")
    there = world()
    one = episode(there)
    one.strategy = WALK
    made = prompts("compact", prompts=str(tmp_path))
    assert made.strategy(one).text.startswith("mine Walk from")
    assert made.action(one).text.startswith("follow Walk right")
    there.close()
    (tmp_path / "compact" / "judgment.txt").write_text("{history}")
    with pytest.raises(InputError, match=r"judgment\.txt lacks the slots \['description', 'strategy'\]"):
        prompts("compact", prompts=str(tmp_path))


def test_parsing():
    assert parse_strategy("I think <strategy> a </strategy> no <strategy>\nb\n</strategy>.") == "b"
    assert parse_strategy("<strategy></strategy>") is None
    assert parse_strategy("<strategy>") is None
    assert parse_judgment("x <judgment>[1, 3, 9]</judgment>", steps=3) == {1, 3}
    assert parse_judgment("<judgment>[]</judgment>", steps=3) == frozenset()
    assert parse_judgment("<judgment>all is well</judgment>", steps=3) is None
    assert parse_judgment("none", steps=3) is None
