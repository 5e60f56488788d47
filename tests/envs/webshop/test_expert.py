"""The scripted shopper: plans in words, one move at a time, and what each habit is worth."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from envs.webshop import expert
from envs.webshop.compact import compact_vocabulary, page_text, to_official
from envs.webshop.env import WebShop
from envs.webshop.expert import BEST, PLANS, WORST, Plan, act, parse_plan, plan_text
from envs.webshop.pages import Page, Shop
from harness.seeding import python_random
from tests.envs.webshop.small import DEAR_MUG, GOAL, KETTLE, PLAIN_MUG, PRODUCTS, SLIM_MUG

SHOP = Shop(PRODUCTS)
RNG = python_random("unused")


def results(*products, seen=()):
    return Page("results", "mug", 1, products, seen=frozenset(product.asin.lower() for product in seen))


def item(product, **chosen):
    return Page("item", "mug", 1, (product,), product=product, chosen=chosen)


def move(plan, page, goal=GOAL):
    return act(plan, page, goal, RNG).action


def success(plan, noise=0.0, every=1):
    env = WebShop(view="compact")
    tasks = env.tasks("test")[::every]
    rng = python_random("test-expert", 0)
    wins = 0
    for task in tasks:
        env.reset(task, seed=0)
        for _ in range(env.spec.horizon):
            if env.step(act(plan, env.page, env.goal, rng, noise).action).terminated:
                break
        wins += env.verdict().success
    return wins / len(tasks)


def test_plans_have_texts_of_their_own():
    assert len({plan_text(plan) for plan in PLANS}) == len(PLANS) == 54
    assert plan_text(BEST) == "search all words , match attributes and price , choose all options , check first"
    assert max(len(plan_text(plan).split()) for plan in PLANS) <= 16


@given(st.sampled_from(PLANS))
def test_plan_texts_are_read_back(plan):
    assert parse_plan(plan_text(plan)) == plan


def test_other_texts_are_no_plans():
    with pytest.raises(ValueError, match=r"no plan reads 'think hard'.*search all words"):
        parse_plan("think hard")


def test_quality_orders_plans():
    assert (BEST.quality, WORST.quality) == (1.0, 0.0)
    assert all(WORST.quality <= plan.quality <= BEST.quality for plan in PLANS)


@pytest.mark.parametrize(
    ("query", "action"),
    [
        ("type", "search mug"),
        ("attributes", "search slim cotton mug"),
        ("all", "search slim cotton mug color red size large"),
    ],
)
def test_queries(query, action):
    assert move(replace(BEST, query=query), Page()) == action


@pytest.mark.parametrize(("pick", "action"), [("first", "click r1"), ("cheapest", "click r2"), ("match", "click r4")])
def test_picks(pick, action):
    """A dear match, a cheap one without the attributes, one with half of them, a full match."""
    cheap = replace(PLAIN_MUG, price_tag="$5.00")
    half = replace(KETTLE, title="Ovello Slim Mug")
    assert move(replace(BEST, pick=pick), results(DEAR_MUG, cheap, half, SLIM_MUG)) == action


def test_opened_products_are_not_taken_again():
    other = replace(SLIM_MUG, asin="B0OTHERMG6")
    assert move(BEST, results(SLIM_MUG, other, seen=[SLIM_MUG])) == "click r2"
    assert move(WORST, results(SLIM_MUG, other, seen=[SLIM_MUG])) == "click r2"


def test_where_nothing_fits_the_page_is_turned_and_the_search_begun_again_after_the_last():
    many = [replace(DEAR_MUG, asin=f"B{number:09d}") for number in range(12)]
    assert move(BEST, results(*many)) == "click next"
    assert move(BEST, replace(results(*many), number=2)) == "click back"
    assert move(BEST, results()) == "click back"


@pytest.mark.parametrize(
    ("options", "chosen", "action"),
    [
        ("all", {}, "click red"),
        ("all", {"color": "red"}, "click large"),
        ("all", {"color": "dark blue", "size": "large"}, "click red"),
        ("all", {"color": "red", "size": "large"}, "click buy"),
        ("one", {}, "click red"),
        ("one", {"color": "red"}, "click buy"),
        ("skip", {}, "click buy"),
    ],
)
def test_options(options, chosen, action):
    assert move(replace(BEST, options=options), item(SLIM_MUG, **chosen)) == action


@pytest.mark.parametrize("product", [DEAR_MUG, PLAIN_MUG, replace(SLIM_MUG, options={"color": ("red",)})])
def test_looking_sends_back_what_is_too_dear_or_lacks_an_option(product):
    assert move(BEST, item(product)) == "click prev"
    assert move(replace(BEST, check="buy"), item(product)) != "click prev"


def test_sub_pages_are_left_and_finished_episodes_have_no_move():
    assert move(BEST, replace(item(SLIM_MUG), kind="reviews")) == "click prev"
    with pytest.raises(ValueError, match="no next move"):
        move(BEST, Page("done", product=SLIM_MUG, score=1.0))


def test_slips_are_as_frequent_as_asked_and_marked():
    rng = python_random("test-slips", 0)
    moves = [act(BEST, item(SLIM_MUG), GOAL, rng, 0.3) for _ in range(2000)]
    slips = [m for m in moves if not m.follows_plan]
    # One slip in ten is what the plan would do anyway: ten things can be clicked here.
    assert len(slips) / len(moves) == pytest.approx(0.27, abs=0.03)
    assert all(m.action == "click red" for m in moves if m.follows_plan)
    assert all(m.action != "click red" for m in slips)
    assert all(act(BEST, item(SLIM_MUG), GOAL, rng).follows_plan for _ in range(100))


@given(st.sampled_from(PLANS), st.integers(0, 1000))
def test_every_move_is_admissible_short_and_in_the_vocabulary(plan, seed):
    words = {*compact_vocabulary(), *expert.expert_vocabulary()}
    env = WebShop(view="compact")
    task = env.tasks("train")[seed]
    rng = python_random("test-moves", seed)
    env.reset(task, seed=0)
    for _ in range(env.spec.horizon):
        m = act(plan, env.page, env.goal, rng, 0.3)
        assert to_official(m.action, env.page) is not None
        assert 1 <= len(m.thought.split()) <= 8
        assert {*m.action.split(), *m.thought.split(), *plan_text(plan).split()} <= words
        if env.step(m.action).terminated:
            break


def test_moves_depend_on_nothing_that_the_page_does_not_show():
    """Products that read alike but differ in hidden facts (true price, attributes, pages) are treated alike."""
    twin = replace(SLIM_MUG, price=39.0, attributes=("heavy",), description="no", bullets=(), reviews=(), rating=1.0)
    for plan in PLANS:
        for page, other in ((item(SLIM_MUG), item(twin)), (results(SLIM_MUG, DEAR_MUG), results(twin, DEAR_MUG))):
            assert page_text(page, GOAL) == page_text(other, GOAL)
            assert move(plan, page) == move(plan, other)


def test_good_habits_pay_and_bad_ones_do_not():
    """Measured on all 500 test goals: best 1.00, worst 0.00."""
    assert success(BEST) >= 0.9
    assert success(WORST) <= 0.3


@pytest.mark.parametrize(
    "worse",
    [
        Plan("type", "match", "all", "buy"),
        Plan("attributes", "first", "all", "buy"),
        replace(BEST, options="one"),
        replace(BEST, options="skip"),
    ],
    ids=["type only", "first result", "one option", "no options"],
)
def test_each_bad_habit_costs_much(worse):
    """Every fourth test goal; the best plan solves all of them."""
    assert success(worse, every=4) <= 0.6


def test_quality_foretells_success():
    """Rank correlation over all 54 plans, every twentieth test goal; 0.97 on all 500."""
    measured = [success(plan, every=20) for plan in PLANS]
    assert spearmanr([plan.quality for plan in PLANS], measured).statistic > 0.8


def test_slips_cost_success():
    assert success(BEST, noise=0.5, every=4) < success(BEST, noise=0.1, every=4) - 0.2
