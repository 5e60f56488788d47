"""Distances to success."""

import math
from dataclasses import replace

import pytest

from envs.webshop.env import World, open_world
from envs.webshop.goals import GoalSplits
from envs.webshop.pages import Page, Shop
from envs.webshop.progress import Progress
from tests.envs.webshop.small import GOAL, LAMP, NOUNS, PLAIN_MUG, PRODUCTS, SLIM_MUG

WORLD = World(Shop(PRODUCTS), GoalSplits((), (), ()), NOUNS, "")
PROGRESS = Progress(WORLD, GOAL)


def walk(*actions):
    page = Page()
    for action in actions:
        page = WORLD.shop.follow(page, action)
        assert page is not None
    return page


@pytest.mark.parametrize(
    ("actions", "distance"),
    [
        ([], 5),
        (["search[mug]"], 4),
        (["search[lamp]"], 5),
        (["search[mug]", "click[b0slimmug1]"], 3),
        (["search[mug]", "click[b0slimmug1]", "click[red]"], 2),
        (["search[mug]", "click[b0slimmug1]", "click[small]"], 3),
        (["search[mug]", "click[b0slimmug1]", "click[red]", "click[large]"], 1),
        (["search[mug]", "click[b0slimmug1]", "click[red]", "click[features]"], 3),
        (["search[mug]", "click[b0dearmug2]"], 5),
        (["search[lamp]", "click[b0lamp0005]"], 5),
        (["search[lamp]", "click[b0lamp0005]", "click[reviews]"], 5),
    ],
)
def test_steps_to_go(actions, distance):
    assert PROGRESS.steps_to_go(walk(*actions)) == distance


def test_a_purchase_ends_all():
    page = walk("search[mug]", "click[b0slimmug1]", "click[buy now]")
    assert PROGRESS.steps_to_go(replace(page, score=1.0)) == 0
    assert PROGRESS.steps_to_go(replace(page, score=0.6)) == math.inf


def test_right_products_on_later_pages_are_walked_to():
    crowd = [replace(LAMP, asin=f"B{number:09d}") for number in range(15)]
    page = Page("results", "x", 1, (*crowd, SLIM_MUG))
    assert PROGRESS.steps_to_go(page) == 5
    assert PROGRESS.steps_to_go(replace(page, number=2)) == 4
    assert PROGRESS.forward(page, replace(page, number=2))
    assert not PROGRESS.forward(replace(page, number=2), page)


def test_another_product_may_be_right_too():
    """What counts is reward 1, not the product that the goal was written for."""
    twin = replace(SLIM_MUG, asin="B0TWINMUG7")
    world = replace(WORLD, shop=Shop([*PRODUCTS, twin]))
    assert Progress(world, GOAL).steps_to_go(Page("results", "x", 1, (PLAIN_MUG, twin))) == 4


def test_gold_paths_go_forward_at_every_step():
    world = open_world()
    for goal in world.goals.test[::50]:
        progress = Progress(world, goal)
        page = Page()
        words = " ".join((*goal.attributes, goal.query))
        product = world.shop.by_asin[goal.asin.lower()]
        if product not in world.shop.search(page, words).shown:
            continue
        for action in (f"search[{words}]", f"click[{goal.asin}]", *(f"click[{v}]" for v in goal.options.values())):
            after = world.shop.follow(page, action)
            assert progress.forward(page, after), action
            page = after
