"""StraTA beside its paper, on rollouts that are written down: groups, rewards and advantages, number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from baselines.grpo import GRPO
from harness.env import EnvError, InfraError
from harness.experience import Experience
from harness.method import Method
from harness.model import Kit, UnsupportedOption
from harness.training.policy_gradient import PolicyGradient
from harness.types import Observation, Strategy, Task
from methods.strata.diversity import farthest_point_selection
from methods.strata.method import StraTA
from tests.methods.strata.playbook import BAD, LEFT, RIGHT, STOP, Playbook, corners, explore, strata, strategies
from tests.models.tiny import tiny
from tests.plays import arena, episode, play, task, world
from tests.toys import ToyEnv

GROUP = (2, 3)
VECTORS = {"walk": [1.0, 0.0], "stroll": [0.9, 0.4359], "wait": [0.0, 1.0], "return": [-0.6, 0.8], "": [0.0, 0.0]}
MOVES = {(0, 0): [RIGHT, STOP], (0, 1): [STOP], (1, 0): [BAD, RIGHT, STOP], (1, 1): [LEFT, RIGHT, STOP]}
ONE = strategies("walk", "wait")


def always(*moves: str) -> dict[tuple[int, int], list[str]]:
    """The same moves in every rollout."""
    return {place: list(moves) for place in MOVES}


def normalised(rewards: Any) -> Any:
    values = np.asarray(rewards, dtype=float)
    return (values - values.mean()) / (values.std(ddof=1) + 1e-6)


# -- the numbers ------------------------------------------------------------------------------------------------


def test_two_level_groups_rewards_and_advantages():
    """H = 7: success at step 2 is worth 11/12, at step 3 5/6. The malformed step and the flagged one stand out."""
    book = Playbook(ONE, MOVES, {(1, 1): "1 is off <judgment>[1]</judgment>", (0, 1): "<judgment>none</judgment>"})
    method = strata(book, diversity=False)
    experience, tally = explore(method)
    two, three = 11 / 12, 5 / 6
    strategy_rewards = [two, three]  # Eq. 10 with delta = 0.5: the better rollout of each, bare
    first = [two, two, 0.0]  # all steps of both rollouts of strategy 0 (Eq. 8, 9)
    second = [three - 1, three, three, three - 0.1, three, three]  # Eq. 12, and Eq. 17 with kappa = 0.1
    assert experience.row_rewards == pytest.approx([*strategy_rewards, *first, *second])
    assert experience.row_groups == ((*GROUP, "strategies"),) * 2 + ((*GROUP, 0),) * 3 + ((*GROUP, 1),) * 6
    assert [row.kind for row in experience.rows] == ["strategy"] * 2 + ["action"] * 9
    assert method.advantages(experience) == pytest.approx(
        [*normalised(strategy_rewards), *normalised(first), *normalised(second)]
    )
    assert tally.episodes == 4
    metrics = method.summary(experience)
    assert metrics["judgment_failure_rate"] == 1 / 4, "counted, and nothing is flagged"
    assert metrics["flagged_rate"] == 1 / 9
    assert metrics["malformed_rate"] == 1 / 9
    assert metrics["success"] == 3 / 4
    assert (metrics["rows"], metrics["dropped_groups"], metrics["malformed_strategy_rate"]) == (11, 0, 0)


@pytest.mark.parametrize(("delta", "reward"), [(0.1, 11 / 12), (0.5, 11 / 12), (0.51, 11 / 24), (1.0, 11 / 24)])
def test_a_strategy_is_worth_the_best_fraction_of_its_rollouts(delta, reward):
    """k = max(1, ceil(delta M)); success at step 2 and failure at step 1."""
    experience, _ = explore(strata(Playbook(ONE, MOVES), diversity=False, judgment=False, top_fraction=delta))
    assert experience.rows[0].reward == pytest.approx(reward)


def test_a_strategy_has_its_own_length_and_format_terms_and_none_of_its_actions():
    long = "walk " * 28  # 30 words with the tags' neighbours, and the end of the sequence: 30 of 40 tokens
    replies = [f"so <strategy>{long}</strategy>", *strategies(None)]
    moves = always(BAD, RIGHT, STOP)
    experience, _ = explore(strata(Playbook(replies, moves), diversity=False, judgment=False))
    tokens = len(experience.rows[0].ids)
    assert experience.rows[0].reward == pytest.approx(5 / 6 - (tokens / 40 - 0.5) / 0.5)
    assert experience.rows[1].reward == pytest.approx(5 / 6 - 1), "executed as an empty strategy, malformed"
    bare, _ = explore(strata(Playbook(replies, moves), diversity=False, judgment=False, auxiliary="none"))
    assert bare.row_rewards == pytest.approx([5 / 6] * len(bare.rows))


@pytest.mark.parametrize("kappa", [0.01, 0.1, 1.0])
def test_the_weight_of_a_judgment(kappa):
    book = Playbook(ONE, MOVES, {(0, 0): "<judgment>[2, 2, 9]</judgment>"})
    experience, _ = explore(strata(book, diversity=False, judgment_weight=kappa))
    assert [row.reward for row in experience.rows[2:5]] == pytest.approx([11 / 12, max(-1, 11 / 12 - kappa), 0.0])


def test_rewards_are_clipped():
    book = Playbook(ONE, always(BAD), dict.fromkeys(MOVES, "<judgment>[1, 2]</judgment>"))
    experience, _ = explore(strata(book, diversity=False, judgment_weight=1.0))
    assert experience.row_rewards.min() == -1.0


# -- the rollout ------------------------------------------------------------------------------------------------


def test_every_rollout_acts_under_its_strategy():
    book = Playbook(ONE, MOVES)
    explore(strata(book, diversity=False, judgment=False))
    for request in book.requests:
        if request.prompt.kind == "action":
            text = "walk" if request.key[4] == 0 else "wait"
            assert request.prompt.text.startswith(f"follow {text} ; Walk from cell 0 to cell 1 and stop. ; ")
    assert book.prompts("strategy") == ["plan Walk from cell 0 to cell 1 and stop. ; " + _first()] * 2


def _first() -> str:
    there = world()
    one = arena(there, iteration=2, slot=3).episodes(task(0, 1), 1)[0]
    return one.observation.text


def test_all_candidates_come_from_one_prompt_in_one_batch():
    book = Playbook(strategies("walk", "stroll", "wait", "return"), MOVES)
    explore(strata(book, embedder=corners(VECTORS)))
    assert book.batches[0] == ["strategy"] * 4
    assert len(set(book.prompts("strategy"))) == 1
    seeds = [request.sampling.seed for request in book.requests]
    assert len(set(seeds)) == len(seeds)


def test_the_selection_is_that_of_algorithm_1():
    texts = ["walk", "stroll", "wait", "return"]
    book = Playbook(strategies(*texts), MOVES)
    experience, _ = explore(strata(book, embedder=corners(VECTORS), judgment=False))
    vectors = corners(VECTORS)(texts)
    expected = [texts[i] for i in farthest_point_selection(vectors, 2)]
    assert expected == ["wait", "walk"], "the most typical one first, then the farthest from it"
    assert {text.split(" ;")[0] for text in book.prompts("action")} == {f"follow {text}" for text in expected}
    assert len([row for row in experience.rows if row.kind == "strategy"]) == 2, "the others are dropped"
    metrics = strata(book, embedder=corners(VECTORS)).summary(experience)
    assert metrics["cosine_after"] < metrics["cosine_before"]


@pytest.mark.parametrize(
    ("diversity", "judgment", "asked", "judged"),
    [(False, False, 2, 0), (True, False, 4, 0), (False, True, 2, 4), (True, True, 4, 4)],
    ids=["Vanilla", "Diverse", "Judgment", "StraTA"],
)
def test_the_variants_of_table_3_are_switches(diversity, judgment, asked, judged):
    book = Playbook(strategies("walk", "stroll", "wait", "return"), MOVES)
    method = strata(book, embedder=corners(VECTORS), diversity=diversity, judgment=judgment)
    explore(method)
    assert (len(book.prompts("strategy")), len(book.prompts("judgment"))) == (asked, judged)


def test_one_candidate_a_strategy_means_no_selection():
    """sigma = 1 and the Judgment row of Table 3 are equal: the same strategies, whatever their order."""
    rewards = []
    for options in ({"oversampling": 1, "embedder": corners(VECTORS)}, {"diversity": False}):
        experience, _ = explore(strata(Playbook(ONE, always(RIGHT, STOP)), **options))
        rewards.append(sorted(experience.row_rewards))
    assert rewards[0] == rewards[1]


def test_diversity_without_an_encoder_is_refused():
    config = StraTA.Config(kl_beta=0.0)
    method = StraTA(config, spec=ToyEnv.spec, view="compact", seed=0)
    with pytest.raises(UnsupportedOption, match=r"needs a sentence encoder; .* -o diversity=false"):
        method.setup(Kit({"policy": tiny()}))
    off = StraTA(StraTA.Config(kl_beta=0.0, diversity=False), spec=ToyEnv.spec, view="compact", seed=0)
    off.setup(Kit({"policy": tiny()}))


# -- malformed strategies ---------------------------------------------------------------------------------------


def rows_of(kind: str, experience: Any) -> list[Any]:
    return [row for row in experience.rows if row.kind == kind]


def test_malformed_candidates_stay_out_of_the_selection():
    book = Playbook(strategies(None, "walk", None, "wait"), MOVES)
    experience, _ = explore(strata(book, embedder=corners(VECTORS), judgment=False))
    assert {text.split(" ;")[0] for text in book.prompts("action")} == {"follow walk", "follow wait"}
    assert len(rows_of("strategy", experience)) == 2
    assert experience.metrics["malformed_strategies"] == 2


def test_they_fill_up_what_is_missing_as_empty_strategies():
    book = Playbook(strategies(None, "walk", None, None), always(RIGHT, STOP))
    experience, _ = explore(strata(book, embedder=corners(VECTORS), judgment=False))
    assert [row.reward for row in rows_of("strategy", experience)] == pytest.approx([11 / 12, 11 / 12 - 1])
    assert any(text.startswith("follow  ; Walk") for text in book.prompts("action"))


def test_all_malformed():
    book = Playbook(strategies(None), always(RIGHT, STOP))
    method = strata(book, embedder=corners(VECTORS), judgment=False)
    experience, _ = explore(method)
    assert [row.reward for row in rows_of("strategy", experience)] == pytest.approx([11 / 12 - 1] * 2)
    assert method.advantages(experience)[:2].tolist() == [0, 0]


def test_penalised_candidates_join_the_strategy_group_with_minus_one():
    book = Playbook(strategies(None, "walk", None, None), always(RIGHT, STOP))
    method = strata(book, embedder=corners(VECTORS), judgment=False, malformed="penalise")
    experience, _ = explore(method)
    found = rows_of("strategy", experience)
    assert [row.reward for row in found] == pytest.approx([11 / 12, 11 / 12 - 1, -1.0, -1.0])
    assert {row.group for row in found} == {(*GROUP, "strategies")}
    assert len({row.trajectory for row in found}) == 4
    assert method.advantages(experience)[:4] == pytest.approx(normalised([11 / 12, 11 / 12 - 1, -1.0, -1.0]))


@pytest.mark.parametrize(
    ("moves", "actions", "plans"),
    [
        (MOVES, 0, 0),
        (always(RIGHT, STOP), 1, 1),
        ({**always(RIGHT, STOP), (1, 0): [LEFT, RIGHT, STOP]}, 0.5, 1),  # the best of its rollouts is as good
        ({**always(RIGHT, STOP), (1, 0): [LEFT, RIGHT, STOP], (1, 1): [LEFT, RIGHT, STOP]}, 1, 0),
    ],
)
def test_flat_groups_of_actions_and_of_strategies_are_two_numbers(moves, actions, plans):
    method = strata(Playbook(ONE, moves), diversity=False)
    metrics = method.summary(explore(method)[0])
    assert (metrics["flat_groups"], metrics["flat_strategy_groups"]) == (actions, plans)


def test_a_group_that_has_no_rows_is_not_flat():
    method = strata(Playbook(ONE, MOVES), diversity=False)
    metrics = method.summary(explore(method, env=fragile(1, 3))[0])
    assert metrics["flat_strategy_groups"] == 0
    assert "flat_groups" not in metrics
    assert not {"flat_groups", "flat_strategy_groups", "entropy"} & set(method.summary(Experience()))


# -- failures ---------------------------------------------------------------------------------------------------


def fragile(*lost: int) -> type[ToyEnv]:
    """A corridor whose worlds number so and so cannot be opened, nor at the second try."""

    class Fragile(ToyEnv):
        opened = 0

        def reset(self, task: Task, *, seed: int) -> Observation:
            number = Fragile.opened // 2 if Fragile.opened // 2 in lost else None
            Fragile.opened += 1 if number is not None else 2
            if number is not None:
                raise EnvError("no world")
            return super().reset(task, seed=seed)

    return Fragile


def test_a_strategy_with_one_rollout_left_is_rewarded_and_its_steps_are_dropped():
    book = Playbook(ONE, MOVES)
    experience, tally = explore(strata(book, diversity=False), env=fragile(1))
    assert tally.failed == {"env_error": 1}
    assert experience.dropped == 1
    assert len(rows_of("strategy", experience)) == 2
    assert len({row.group for row in rows_of("action", experience)}) == 1


def test_a_strategy_without_rollouts_is_not_judged_at_all():
    book = Playbook(ONE, MOVES)
    experience, tally = explore(strata(book, diversity=False), env=fragile(2, 3))
    assert sum(tally.failed.values()) == 2
    assert [row.reward for row in rows_of("strategy", experience)] == pytest.approx([11 / 12])
    assert len(book.prompts("judgment")) == 2


def test_a_judge_that_fails_flags_nothing_and_is_counted():
    method = strata(Playbook(ONE, MOVES), diversity=False)
    judge = Playbook([], {}, dict.fromkeys(MOVES, InfraError("judge gone")))
    Method.setup(method, Kit({**method.kit.models, "judge": judge}))
    experience, _ = explore(method)
    assert (experience.metrics["judgments"], experience.metrics["judgment_failures"]) == (4, 4)
    assert experience.metrics["flagged_steps"] == 0
    assert len(rows_of("action", experience)) == 9


def test_judgments_are_no_rows_and_cost_tokens():
    book = Playbook(ONE, MOVES)
    experience, tally = explore(strata(book, diversity=False))
    assert {row.kind for row in experience.rows} == {"strategy", "action"}
    assert tally.usage.calls == len(book.requests)


# -- evaluation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reply", "text"), [("<strategy> walk </strategy>", "walk"), ("hmm", "")])
def test_an_evaluation_episode_has_one_strategy_and_no_judge(reply, text):
    book = Playbook([reply], {(0, 0): [RIGHT, RIGHT, STOP]})
    method = strata(book, diversity=False)
    there = world(kit=method.kit)
    done = play(there, method.solve(episode(there, phase="eval")))[0]
    assert done.strategy == Strategy(text)
    assert [turn.kind for turn in done.turns] == ["strategy", "action", "action", "action"]
    assert not any(turn.trainable for turn in done.turns)
    assert done.success
    assert all(text in prompt for prompt in book.prompts("action"))


# -- beside GRPO ------------------------------------------------------------------------------------------------

walks = st.lists(st.sampled_from([RIGHT, LEFT, STOP, BAD]), min_size=1, max_size=7)


@given(st.lists(walks, min_size=2, max_size=4))
@settings(max_examples=25)
def test_one_empty_strategy_without_extras_is_grpo_over_rows(rollouts):
    """N = 1, no diversity, no judgment, an empty strategy: what is left is GRPO with statistics=row."""
    moves = {(0, k): walk for k, walk in enumerate(rollouts)}
    m = len(rollouts)
    one = strata(Playbook(["none"], moves), strategies=1, rollouts=m, diversity=False, judgment=False)
    ours, _ = explore(one)
    config = GRPO.Config(rollouts=m, statistics="row", max_tokens=40)
    other = GRPO(config, spec=ToyEnv.spec, view="compact", seed=0)
    kit = Kit({"policy": Playbook([], moves)})
    Method.setup(other, kit)
    there = world(kit=kit)
    theirs = play(there, other.explore(task(0, 1), arena(there, iteration=2, slot=3)))[0]
    advantages = one.advantages(ours)
    assert ours.rows[0].kind == "strategy"
    assert advantages[0] == 0.0, "a lone strategy was compared with nothing"
    assert [row.ids for row in ours.rows[1:]] == [row.ids for row in theirs.rows]
    assert np.array_equal(advantages[1:], other.advantages(theirs))


def test_budgets():
    method = strata(Playbook([], {}), strategies=3, rollouts=5, oversampling=4)
    assert (method.rollouts_per_task, method.candidates) == (15, 12)
    assert strata(Playbook([], {}), strategies=3, diversity=False).candidates == 3
    assert issubclass(StraTA, PolicyGradient)
    assert StraTA.coupling == "trained"


def test_an_encoder_is_needed_for_diversity_alone():
    assert StraTA.needs_embedder(StraTA.Config())
    assert not StraTA.needs_embedder(StraTA.Config(diversity=False))


def test_a_lone_rollout_is_refused():
    """Its steps would be compared with nothing: no action would ever be trained."""
    with pytest.raises(ValidationError, match="rollouts"):
        StraTA.Config(rollouts=1)


def test_where_the_judge_never_sees_the_end_hiding_it_is_refused():
    for view, message in (("compact", "judge_sees_end=false has no effect in the compact view"), ("full", "encoder")):
        method = StraTA(StraTA.Config(judge_sees_end=False), spec=ToyEnv.spec, view=view, seed=0)
        with pytest.raises(UnsupportedOption, match=message):
            method.setup(Kit({"policy": tiny()}))
