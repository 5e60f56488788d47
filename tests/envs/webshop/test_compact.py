"""The compact view: the same pages in few words of a closed vocabulary."""

from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop import compact
from envs.webshop.env import WebShop, open_world
from envs.webshop.pages import Page, Shop, clickables
from tests.envs.webshop.small import GOAL, PRODUCTS, SLIM_MUG

SHOP = Shop(PRODUCTS)
VOCABULARY = frozenset(compact.compact_vocabulary())


def walk(*actions, page=None, shop=SHOP):
    page = page or Page()
    for action in actions:
        page = shop.follow(page, compact.to_official(action, page))
    return page


RESULTS = walk("search slim cotton mug")
ITEM = walk("click r1", page=RESULTS)


def test_goal():
    assert compact.goal_text(GOAL) == "goal slim cotton mug color red size large under p40"
    assert compact.goal_text(replace(GOAL, price_upper=1_000_000, instruction="find me a mug")) == "goal mug"


@pytest.mark.parametrize(
    ("dollars", "token"), [(0.5, "p10"), (10, "p10"), (10.01, "p20"), (27.5, "p30"), (990, "p990")]
)
def test_prices_are_binned_so_that_limits_are_kept_exactly(dollars, token):
    assert compact.price_token(dollars) == token


@given(st.integers(1, 20_000), st.integers(1, 20))
def test_a_price_is_within_a_limit_exactly_when_its_bin_is(cents, tens):
    assert (cents / 100 <= tens * 10) == (int(compact.price_token(cents / 100)[1:]) <= tens * 10)


def test_pages():
    assert compact.page_text(Page(), GOAL) == "start ; search"
    assert compact.page_text(RESULTS, GOAL) == (
        "results 1 ; r1 slim cotton mug p30 r2 slim mug p60 r3 heavy mug p30 r4 slim kettle p30 ; next back"
    )
    assert compact.page_text(ITEM, GOAL) == (
        "item slim cotton mug p30 ; color red , dark blue ; size small , large ; chosen none ; "
        "buy prev back description features reviews"
    )
    assert compact.page_text(walk("click features", page=ITEM), GOAL) == (
        "features engraved by design a good gift ; prev back"
    )
    assert compact.page_text(walk("click description", page=ITEM), GOAL) == "description a mug that is slim ; prev back"
    assert compact.page_text(walk("click reviews", page=ITEM), GOAL) == (
        "reviews love it it is slim okay the box was late ; prev back"
    )
    assert compact.page_text(walk("click buy", page=ITEM), GOAL) == "done"
    assert compact.page_text(walk("search unheard"), GOAL) == "results 1 ; none ; next back"


def test_chosen_values_stand_in_the_order_of_the_options():
    page = walk("click large", "click dark blue", page=ITEM)
    assert "; chosen dark blue , large ;" in compact.page_text(page, GOAL)


def test_opened_products_are_marked():
    assert "r1 seen slim cotton mug p30 r2 slim mug" in compact.page_text(walk("click prev", page=ITEM), GOAL)


def test_pages_after_the_last_look_alike():
    page = walk("search slim mug", *["click next"] * 9)
    assert compact.page_text(page, GOAL) == "results 6 ; none ; prev next back"


@pytest.mark.parametrize(
    ("page", "action", "official"),
    [
        (Page(), "search slim mug", "search[slim mug]"),
        (Page(), "  Search  Slim   mug ", "search[slim mug]"),
        (RESULTS, "click r2", "click[b0dearmug2]"),
        (RESULTS, "click next", "click[next >]"),
        (RESULTS, "click back", "click[back to search]"),
        (ITEM, "click dark blue", "click[dark blue]"),
        (ITEM, "click prev", "click[< prev]"),
        (ITEM, "click features", "click[features]"),
        (ITEM, "click buy", "click[buy now]"),
    ],
)
def test_actions_are_translated(page, action, official):
    assert compact.to_official(action, page) == official
    assert compact.from_official(official, page) == " ".join(action.lower().split())


@pytest.mark.parametrize("action", ["", "search", "search ", "click", "click r9", "click blue", "buy", "click[red]"])
def test_what_a_page_does_not_offer_has_no_translation(action):
    assert compact.to_official(action, ITEM) is None


def test_what_a_page_does_not_offer_has_no_compact_name():
    with pytest.raises(ValueError, match=r"click\[b0lamp0005\].*item page.*back to search"):
        compact.from_official("click[b0lamp0005]", ITEM)


def test_every_click_of_a_page_has_a_compact_name():
    for page in (RESULTS, ITEM, walk("click next", page=RESULTS), walk("click reviews", page=ITEM)):
        assert set(compact.compact_clicks(page).values()) == set(clickables(page))


class TestForeignData:
    """Products of the official kind: long titles, many options, punctuation."""

    product = replace(
        SLIM_MUG,
        title="Norvik Men's T-Shirt, 100% Cotton (Pack of 2) - Extra Soft; Long Sleeve for Work & Travel, Big",
        options={"size": tuple(f"{n} wide | {n + 1}" for n in range(30)), "color": ("★", "a03, red")},
        price_tag="$1,234.00",
    )
    page = Page("item", hits=(product,), number=1, product=product)

    def test_long_lists_are_cut_but_keep_what_the_goal_names(self):
        goal = replace(GOAL, instruction="find me a shirt, size: 25 wide | 26")
        text = compact.page_text(self.page, goal)
        assert "25 wide 26" in text
        assert text.count(" wide ") == compact.OPTION_VALUES
        assert len(text.split()) < 60

    def test_a_chosen_value_is_never_cut(self):
        page = replace(self.page, chosen={"size": "29 wide | 30"})
        assert compact.page_text(page, GOAL).count("29 wide 30") == 2

    def test_titles_lose_their_brand_and_end(self):
        assert compact.title_words(self.product, 4) == ["men's", "t-shirt", "100", "cotton"]
        assert compact.title_words(replace(self.product, title="Norvik"), 4) == ["norvik"]

    def test_values_are_clicked_by_their_words(self):
        assert compact.to_official("click a03 red", self.page) == "click[a03, red]"
        assert compact.to_official("click 3 wide 4", self.page) == "click[3 wide | 4]"
        assert compact.to_official("click ★", self.page) == "click[★]"

    def test_the_highest_price_of_a_tag_counts(self):
        assert compact.highest_price(self.product) == 1234.0
        assert compact.highest_price(replace(self.product, price_tag="$10.00 to $25.50")) == 25.5
        assert compact.highest_price(replace(self.product, price_tag="ask us")) == self.product.price

    def test_long_goals_are_cut(self):
        goal = replace(GOAL, instruction=" ".join(f"word{n}" for n in range(50)))
        assert len(compact.goal_text(goal).split()) == compact.GOAL_WORDS + 3


def shown_in_play():
    """Every page that the gold path of every fifth test goal passes, and all sub-pages."""
    env = WebShop(view="compact")
    for task in env.tasks("test")[::5]:
        yield "goal", task.instruction
        observation = env.reset(task, seed=0)
        for action in env.oracle(task):
            yield observation.page, observation.text
            for name in ("description", "features", "reviews") if observation.page == "item" else ():
                page = env.world.shop.click(env.page, name)
                yield name, compact.page_text(page, env.goal)
            observation = env.step(action).observation


def test_pages_are_short_and_their_vocabulary_closed():
    lengths = {}
    for kind, text in shown_in_play():
        assert set(text.split()) <= VOCABULARY, set(text.split()) - VOCABULARY
        lengths.setdefault(kind, []).append(len(text.split()))
    assert max(lengths["goal"]) <= 13
    assert max(lengths["results"]) <= 75
    assert mean(lengths["results"]) <= 65
    assert max(lengths["item"]) <= 45
    assert max(max(lengths[name]) for name in ("description", "features", "reviews")) <= 45


def test_the_whole_catalogue_speaks_the_vocabulary():
    for product in open_world().shop.products:
        page = Page("item", product=product, number=1, hits=(product,))
        for kind in ("results", "item", "description", "features", "reviews"):
            assert set(compact.page_text(replace(page, kind=kind), GOAL).split()) <= VOCABULARY
        assert set(" ".join(compact.compact_clicks(page)).split()) <= VOCABULARY


def test_all_goals_speak_the_vocabulary():
    goals = open_world().goals
    for goal in (*goals.test, *goals.validation, *goals.train):
        assert set(compact.goal_text(goal).split()) <= VOCABULARY


def test_the_vocabulary_is_small():
    assert len(VOCABULARY) <= 400
    assert set(compact.NOTICE.split()) <= VOCABULARY
