"""The reward of princeton-nlp/WebShop, oddities included."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop.reward import COLORS, normalize_color, reward
from tests.envs.webshop.small import CHOSEN, DEAR_MUG, GOAL, KETTLE, LAMP, NOUNS, PRODUCTS, SLIM_MUG


def value(product, chosen, goal=GOAL):
    return reward(product, chosen, goal, NOUNS).total


def test_exact_match_is_worth_one():
    result = reward(SLIM_MUG, CHOSEN, GOAL, NOUNS)
    assert (result.total, result.type_factor, result.title_score) == (1.0, 1.0, 1.0)
    assert (result.attributes, result.options, result.price) == ((True, True), (True, True), True)


@pytest.mark.parametrize(
    ("chosen", "worth"),
    [({"color": "dark blue", "size": "large"}, 0.8), ({}, 0.6), ({"size": "large"}, 0.8)],
    ids=["wrong colour", "no options", "one option"],
)
def test_options_count_one_each(chosen, worth):
    assert value(SLIM_MUG, chosen) == pytest.approx(worth)


def test_too_expensive_costs_one_part():
    assert value(replace(SLIM_MUG, price=40.01), CHOSEN) == pytest.approx(0.8)
    assert value(replace(SLIM_MUG, price=40.0), CHOSEN) == 1.0
    assert reward(DEAR_MUG, CHOSEN, GOAL, NOUNS).price is False


def test_another_product_with_the_same_word():
    """A kettle that is slim for a slim mug: no noun in common, so the type factor is 0."""
    assert value(KETTLE, {}) == 0.0


def test_a_product_of_another_query_and_category_is_worth_what_its_title_shares():
    goal = replace(GOAL, title="Mug Cup Lamp Kettle Cup", attributes=("huge",), options={})
    other = replace(LAMP, title="Lamp", price=90.0)
    assert reward(other, {}, goal, NOUNS).title_score == pytest.approx(0.2)
    assert reward(other, {}, goal, NOUNS).type_factor == 0.5
    assert value(replace(other, price=5.0), {}, goal) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("change", "factor"),
    [({"query": "mug"}, 1.0), ({"category": "Mug › Tableware › Odd"}, 1.0), ({"category": "Mug › Odd"}, 0.5)],
    ids=["same query", "two category parts", "one category part"],
)
def test_the_kind_is_right_by_query_or_two_category_parts(change, factor):
    goal = replace(GOAL, title="mug cup lamp kettle cup")
    assert reward(replace(LAMP, title="cheap lamp", **change), {}, goal, NOUNS).type_factor == factor


def test_few_common_nouns_are_worth_a_tenth_whatever_the_query():
    goal = replace(GOAL, title="mug " * 10 + "lamp", category="x")
    assert reward(replace(LAMP, query="mug"), {}, goal, NOUNS).type_factor == 0.1


def test_a_goal_title_without_nouns_scores_a_fifth():
    result = reward(LAMP, {}, replace(GOAL, title="slim thing"), NOUNS)
    assert (result.title_score, result.type_factor) == (0.2, 0.5)


def test_unrelated_products_are_worth_nothing():
    assert value(LAMP, {}) == 0.0


def test_attributes_are_found_alike_or_anywhere_in_the_texts():
    goal = replace(GOAL, options={})
    bare = replace(SLIM_MUG, attributes=("DUMMY_ATTR",), title="mug", description="", bullets=())
    assert reward(bare, {}, goal, NOUNS).attributes == (False, False)
    assert reward(replace(bare, attributes=("cotton blend", "Slim")), {}, goal, NOUNS).attributes == (True, True)
    assert reward(replace(bare, title="Slimmer mug"), {}, goal, NOUNS).attributes == (True, False)
    assert reward(replace(bare, bullets=("one", "COTTON")), {}, goal, NOUNS).attributes == (False, True)
    assert reward(replace(bare, description="slim, cottony"), {}, goal, NOUNS).attributes == (True, True)


@pytest.mark.parametrize(
    ("wanted", "clicked", "hit"),
    [
        ("dark blue", "light blue", True),
        ("blue", "dark blue", True),
        ("dark blue", "blue", True),
        ("red", "dark blue", False),
        ("x-large", "large", True),
        ("large", "x-large", False),
        ("2 pack", "pack of 2", False),
    ],
)
def test_options_are_compared_as_name_and_value_with_colours_reduced(wanted, clicked, hit):
    """The pair as one text: any shade hits, and "large" is part of "size x-large" but "x-large" not of "size large"."""
    name = "color" if "blue" in clicked else "size"
    goal = replace(GOAL, options={name: wanted})
    assert reward(SLIM_MUG, {name: clicked}, goal, NOUNS).options == (hit,)


def test_options_may_be_met_under_another_name():
    assert reward(SLIM_MUG, {"shade": "red", "fit": "large"}, GOAL, NOUNS).options == (True, True)


def test_the_colour_words():
    assert len(COLORS) == len(set(COLORS)) == 102
    assert list(COLORS) == sorted(COLORS)
    assert normalize_color("dark blue") == "blue"
    assert normalize_color("dark green") == "dark"
    assert normalize_color("xx-large") == "xx-large"


@given(
    st.sampled_from(PRODUCTS),
    st.dictionaries(st.sampled_from(["color", "size"]), st.sampled_from(["red", "dark blue", "small", "large"])),
)
def test_rewards_lie_between_zero_and_one(product, chosen):
    result = reward(product, chosen, GOAL, NOUNS)
    assert 0 <= result.total <= result.type_factor <= 1
    assert (result.total == 1) == (
        result.type_factor == 1 and all(result.attributes) and all(result.options) and result.price
    )
