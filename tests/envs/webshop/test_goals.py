"""Goal rules, embedded goals and their splits."""

import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop import words
from envs.webshop.catalogue import embedded_catalogue
from envs.webshop.goals import (
    NO_LIMIT,
    GoalSplits,
    digest,
    embedded_goals,
    goal_for,
    offers,
    official_splits,
    option_phrase,
    price_limit,
    price_phrase,
)

PRODUCTS = embedded_catalogue()
BY_ASIN = {product.asin: product for product in PRODUCTS}
GOALS = embedded_goals(PRODUCTS)
ALL_GOALS = (*GOALS.train, *GOALS.validation, *GOALS.test)
DIGEST = "b5d4e23d5f37a07bb1e4ac009be87115d25f324d83e1714192b015517a0be4c2"


def meaning(goal):
    return goal.query, frozenset(goal.attributes), tuple(sorted(goal.options.items()))


def meets(product, goal):
    return (
        product.query == goal.query
        and set(goal.attributes) <= set(product.attributes)
        and offers(product, goal.options)
        and product.price <= goal.price_upper
    )


@given(price=st.floats(0.01, 950.0), seed=st.integers(0, 2**32))
def test_a_limit_is_the_second_to_fourth_multiple_of_ten_above_the_price(price, seed):
    """The larger of two among the next four multiples can never be the next one itself."""
    limit = price_limit(price, random.Random(seed))
    assert limit % 10 == 0
    assert limit > price
    assert 10 <= limit - price // 10 * 10 - 10 <= 30


def test_limits_follow_the_maximum_of_two_of_four():
    rng = random.Random(0)
    counts = Counter(price_limit(12.5, rng) for _ in range(6000))
    assert set(counts) == {30.0, 40.0, 50.0}
    assert counts[30.0] / 6000 == pytest.approx(1 / 6, abs=0.02)
    assert counts[50.0] / 6000 == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.parametrize(("price", "limits"), [(20.0, {40.0, 50.0, 60.0}), (975.0, {990.0}), (980.0, {NO_LIMIT})])
def test_limits_at_the_edges(price, limits):
    """A price on a multiple is not below it; 990 is the last multiple, and one alone makes no limit."""
    assert {price_limit(price, random.Random(seed)) for seed in range(40)} == limits


def test_phrases_are_the_official_ones():
    assert option_phrase({"color": "red", "size": "large"}) == " with color: red, and size: large"
    assert option_phrase({}) == ""
    assert price_phrase(40.0) == ", and price lower than 40.00 dollars"
    assert price_phrase(NO_LIMIT) == ""


def test_a_goal_names_its_product_and_reads_as_one_sentence():
    product = PRODUCTS[0]
    goal = goal_for(product, "find me a thing", ["slim"], {"color": "red"}, 40.0)
    assert goal.instruction == "find me a thing, and price lower than 40.00 dollars"
    assert (goal.asin, goal.category, goal.query, goal.title) == (
        product.asin,
        product.category,
        product.query,
        product.title,
    )


def test_sizes_of_the_embedded_splits():
    assert (len(GOALS.test), len(GOALS.validation), len(GOALS.train)) == (500, 500, 4000)
    assert GOALS.removed == 0


@pytest.mark.parametrize("goals", [GOALS.test, GOALS.validation], ids=["test", "validation"])
def test_evaluation_goals_name_different_products(goals):
    """A product is a task's group: tasks that share one would not be independent."""
    assert len({goal.asin for goal in goals}) == 500


def test_splits_are_disjoint_by_text_and_by_meaning():
    assert len({goal.instruction for goal in ALL_GOALS}) == len(ALL_GOALS)
    assert len({meaning(goal) for goal in ALL_GOALS}) == len(ALL_GOALS)


def test_every_goal_is_met_by_its_product():
    assert all(meets(BY_ASIN[goal.asin], goal) for goal in ALL_GOALS)


def test_every_goal_has_a_rival_that_is_too_dear_and_one_that_lacks_an_option():
    for goal in GOALS.test:
        rivals = [p for p in PRODUCTS if p.query == goal.query and set(goal.attributes) <= set(p.attributes)]
        assert any(p.price > goal.price_upper for p in rivals if offers(p, goal.options))
        assert any(not offers(p, goal.options) for p in rivals)


def test_few_products_meet_a_goal():
    """About 28 products of the type are there: buying any of them must fail."""
    meeting = [sum(meets(product, goal) for product in PRODUCTS) for goal in GOALS.test]
    assert sum(meeting) / len(meeting) < 3


def test_goal_words_are_in_the_vocabulary_and_wanted_words_in_the_text():
    known = set(words.vocabulary())
    for goal in ALL_GOALS:
        said = words.words_of(goal.instruction)
        assert set(said) <= known
        assert {*goal.attributes, *goal.query.split()} <= set(said)
        assert all(f"{name}: {value}" in goal.instruction for name, value in goal.options.items())
        assert goal.instruction.endswith(price_phrase(goal.price_upper))


def test_wanted_attributes_stand_mostly_in_the_title_and_options_are_mostly_all_named():
    shown = [set(goal.attributes) <= set(words.words_of(goal.title)) for goal in ALL_GOALS]
    complete = [len(goal.options) == len(BY_ASIN[goal.asin].options) for goal in ALL_GOALS]
    assert 0.9 < sum(shown) / len(shown) < 1
    assert 0.85 < sum(complete) / len(complete) < 1
    assert all(goal.options for goal in ALL_GOALS)
    assert {len(goal.attributes) for goal in ALL_GOALS} == {1, 2}


def test_the_seed_decides():
    assert embedded_goals(PRODUCTS, 0) == GOALS
    assert embedded_goals(PRODUCTS, 1) != GOALS


def test_too_small_a_catalogue_is_refused():
    with pytest.raises(ValueError, match=r"20 products gave \d+ of 500 goals; pass a larger catalogue"):
        embedded_goals(PRODUCTS[:20])


def numbered(count, text=lambda index: f"goal {index}"):
    goal = GOALS.test[0]
    return [replace(goal, asin=f"A{index}", instruction=text(index)) for index in range(count)]


def test_the_official_split_is_the_shuffle_of_seed_233():
    goals = numbered(1600)
    order = list(range(1600))
    random.Random(233).shuffle(order)
    splits = official_splits(goals)
    assert [goal.asin for goal in splits.test] == [f"A{index}" for index in order[:500]]
    assert [goal.asin for goal in splits.validation] == [f"A{index}" for index in order[500:1500]]
    assert [goal.asin for goal in splits.train] == [f"A{index}" for index in order[1500:]]
    assert splits.removed == 0


def test_a_text_of_several_splits_stays_where_it_is_evaluated():
    """The published harnesses leave such texts in train: their agents have practised on test goals."""
    splits = official_splits(numbered(3000, text=lambda index: f"goal {index % 2500}"))
    texts = [{goal.instruction for goal in goals} for goals in (splits.train, splits.validation, splits.test)]
    assert texts[0].isdisjoint(texts[1] | texts[2])
    assert texts[1].isdisjoint(texts[2])
    assert len(splits.test) == 500
    assert splits.removed > 0
    assert len(splits.train) + len(splits.validation) + len(splits.test) + splits.removed == 3000


def test_few_goals_fill_test_first():
    splits = official_splits(numbered(501))
    assert (len(splits.test), len(splits.validation), len(splits.train)) == (500, 1, 0)


def test_digest_sees_a_changed_price_a_changed_order_and_a_moved_goal():
    base = digest(PRODUCTS, GOALS)
    first, *rest = PRODUCTS
    assert base == digest(tuple(PRODUCTS), GOALS)
    assert base != digest((replace(first, price=first.price + 0.01), *rest), GOALS)
    assert base != digest((*rest, first), GOALS)
    moved = GoalSplits(GOALS.train[:-1], (*GOALS.validation, GOALS.train[-1]), GOALS.test)
    assert base != digest(PRODUCTS, moved)


def test_digest_refuses_what_has_no_json_form():
    with pytest.raises(TypeError, match="no JSON form for set"):
        digest((replace(PRODUCTS[0], bullets={1}),), GOALS)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_data_are_the_same_in_a_fresh_process_with_another_hash_seed(hash_seed):
    """The pinned digest: whoever changes the embedded data raises the environment's version and pins anew."""
    code = (
        "from envs.webshop.catalogue import embedded_catalogue as c; from envs.webshop.goals import *; "
        "print(digest(c(), embedded_goals(c())))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert run.stdout.strip() == digest(PRODUCTS, GOALS) == DIGEST
