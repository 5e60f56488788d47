"""The shop's pages: where each click leads, and the golden text of each page."""

from dataclasses import replace

import pytest

from envs.webshop.pages import Page, Shop, clickables, page_text
from tests.envs.webshop.small import GOAL, PLAIN_MUG, PRODUCTS, SLIM_MUG

SHOP = Shop(PRODUCTS)
START = Page()
HEAD = f"Instruction: [SEP] {GOAL.instruction} [SEP] Back to Search [SEP] "
MANY = Shop([replace(PLAIN_MUG, asin=f"B{number:09d}", title=f"Mug {number}") for number in range(12)])


def walk(*actions, page=START, shop=SHOP):
    for action in actions:
        following = shop.follow(page, action)
        assert following is not None, f"{action} is a no-op on {page}"
        page = following
    return page


RESULTS = walk("search[slim cotton mug]")
ITEM = walk("click[b0slimmug1]", page=RESULTS)


def test_search_page():
    assert page_text(START, GOAL) == f"WebShop [SEP] Instruction: [SEP] {GOAL.instruction} [SEP] Search"
    assert not clickables(START)


def test_results_page():
    assert page_text(RESULTS, GOAL) == HEAD + (
        "Page 1 (Total results: 4) [SEP] Next > [SEP] B0SLIMMUG1 [SEP] Norvik Slim Cotton Mug [SEP] $27.50 [SEP] "
        "B0DEARMUG2 [SEP] Slim Tamsel Mug [SEP] $51.00 to $58.00 [SEP] B0PLAINMG3 [SEP] Norvik Heavy Mug [SEP] "
        "$27.50 [SEP] B0KETTLE04 [SEP] Ovello Slim Kettle [SEP] $27.50"
    )
    assert list(clickables(RESULTS)) == [
        "back to search", "next >", "b0slimmug1", "b0dearmug2", "b0plainmg3", "b0kettle04",
    ]  # fmt: skip


def test_empty_results_page():
    assert page_text(walk("search[unheard]"), GOAL) == HEAD + "Page 1 (Total results: 0) [SEP] Next >"


def test_item_page():
    assert page_text(ITEM, GOAL) == HEAD + (
        "< Prev [SEP] color [SEP] red [SEP] dark blue [SEP] size [SEP] small [SEP] large [SEP] Norvik Slim Cotton Mug "
        "[SEP] Price: $27.50 [SEP] Rating: 4.5 [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    buttons = ["back to search", "< prev", "description", "features", "reviews", "buy now"]
    assert list(clickables(ITEM)) == [*buttons, "red", "dark blue", "small", "large"]


def test_item_page_without_options_and_ratings():
    page = walk("search[heavy]", "click[b0plainmg3]")
    assert page_text(page, GOAL) == HEAD + (
        "< Prev [SEP] Norvik Heavy Mug [SEP] Price: $27.50 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] "
        "Reviews [SEP] Buy Now"
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("description", "A mug that is slim."),
        ("features", "Engraved by design [SEP] A good gift"),
        ("reviews", '"love it" [SEP] 5.0 [SEP] it is slim [SEP] "okay" [SEP] 3.0 [SEP] the box was late'),
    ],
)
def test_sub_pages(name, content):
    page = walk(f"click[{name}]", page=ITEM)
    assert (page.kind, page_text(page, GOAL)) == (name, HEAD + "< Prev [SEP] " + content)
    assert list(clickables(page)) == ["back to search", "< prev"]
    assert walk("click[< prev]", page=page) == ITEM


@pytest.mark.parametrize(
    ("name", "text"),
    [("description", "< Prev"), ("features", "< Prev [SEP] No Features"), ("reviews", "< Prev [SEP] No reviews found")],
)
def test_empty_sub_pages(name, text):
    assert page_text(walk("search[heavy]", "click[b0plainmg3]", f"click[{name}]"), GOAL) == HEAD + text


def test_last_page():
    page = replace(walk("click[buy now]", page=ITEM), score=0.8)
    assert page_text(page, GOAL) == (
        "Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] (Paste it in your MTurk interface.) [SEP] "
        "Your score (min 0.0, max 1.0) [SEP] 0.8"
    )
    assert not clickables(page)
    assert SHOP.follow(page, "search[mug]") is None


def test_choosing_keeps_one_value_per_option():
    page = walk("click[red]", "click[large]", "click[dark blue]", page=ITEM)
    assert dict(page.chosen) == {"color": "dark blue", "size": "large"}
    assert page_text(page, GOAL) == page_text(ITEM, GOAL)


def test_chosen_values_survive_sub_pages_but_not_the_way_back_to_the_results():
    page = walk("click[red]", "click[features]", "click[< prev]", page=ITEM)
    assert dict(page.chosen) == {"color": "red"}
    results = walk("click[< prev]", page=page)
    assert (results.kind, results.product, dict(results.chosen)) == ("results", None, {})
    assert not walk("click[b0slimmug1]", page=results).chosen


def test_searching_works_on_every_page_and_lets_go_of_the_product():
    for page in (RESULTS, walk("click[red]", page=ITEM), walk("click[reviews]", page=ITEM)):
        found = walk("search[lamp]", page=page)
        assert (found.kind, found.number, found.product, dict(found.chosen)) == ("results", 1, None, {})


def test_back_to_search_forgets_everything():
    assert walk("click[red]", "click[back to search]", page=ITEM) == START


def test_opened_products_stay_marked_until_the_search_page():
    assert walk("click[< prev]", page=ITEM).seen == {"b0slimmug1"}
    assert walk("search[lamp]", page=ITEM).seen == {"b0slimmug1"}


def test_turning_pages():
    first = walk("search[mug]", shop=MANY)
    second = walk("click[next >]", page=first, shop=MANY)
    assert (len(first.shown), len(second.shown)) == (10, 2)
    assert page_text(second, GOAL).startswith(HEAD + "Page 2 (Total results: 12) [SEP] < Prev [SEP] Next > [SEP] B0000")
    assert walk("click[next >]", page=second, shop=MANY).shown == ()
    assert walk("click[< prev]", page=second, shop=MANY) == first


@pytest.mark.parametrize(
    "action",
    [
        "click[buy now]", "click[search]", "click[b0lamp0005]", "click[< prev]", "buy[mug]", "search[]", "search",
        "click[]", "", "click b0slimmug1", "Search", "think[search]",
    ],
)  # fmt: skip
def test_whatever_the_page_does_not_offer_changes_nothing(action):
    """On the results page: no purchase, no hidden products, no previous page before the first."""
    assert SHOP.follow(RESULTS, action) is None


def test_actions_are_read_in_any_case():
    assert walk("Search[Slim Cotton MUG]", " CLICK[B0SLIMMUG1] ") == ITEM


def test_a_value_shadows_a_button_and_the_same_value_before_it():
    """One table from text to element, as in the original: an option value "description" hides the button."""
    odd = replace(SLIM_MUG, options={"Color": ("red", "description"), "trim": ("red",)})
    page = walk("search[mug]", "click[b0slimmug1]", shop=Shop([odd]))
    assert clickables(page)["red"] == ("choose", "trim")
    assert clickables(page)["description"] == ("choose", "color")


def test_no_product_is_open_on_a_results_page():
    with pytest.raises(ValueError, match="no product is open on a results page"):
        _ = RESULTS.opened
