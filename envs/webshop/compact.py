"""WebShop in few words: the same pages and buttons for policies with a small closed vocabulary.

    start ; search
    results 1 ; r1 slim vintage mug p30 r2 seen soft mug p20 ; next back
    item slim vintage mug p30 ; color red , dark blue ; size small , large ; chosen red ; buy prev back ...

Everything is lower case and every token stands between single spaces. A price becomes the next multiple of ten, `p30`
for 27.50, so that "within the limit" is a comparison of two tokens: goals' limits are multiples of ten. Products are
numbered as they stand on the page. `seen` marks products that were opened before, as WebShop's "text_rich" mode does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from envs.webshop import words as lexicon
from envs.webshop.goals import NO_LIMIT
from envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, SUB_PAGES, Page, clickables
from envs.webshop.schema import Goal, Product

BUTTONS = {"buy": BUY, "prev": PREVIOUS, "next": NEXT, "back": BACK} | {name.lower(): name for name in SUB_PAGES}
"""Compact name of a button -> its text."""

NOTICE = "invalid reply"
PAGE_WORDS = (
    *("start", "search", "click", "results", "item", "done", "seen", "chosen", "none", "goal", "under", ";", ","),
    *BUTTONS,
    *NOTICE.split(),
)

GOAL_WORDS = 24
RESULT_TITLE_WORDS = 6
ITEM_TITLE_WORDS = 10
OPTION_VALUES = 6
SUB_PAGE_WORDS = 40
PAGE_PRODUCTS = 10
RESULTS_PAGES = 6
HIGHEST_PRICE = 150
"""What is shown at most; prices and limits of the embedded catalogue stay below the highest price."""

_WORD = re.compile(r"[^\W_](?:[\w.'&+%/-]*[^\W_])?")
_PRICE_PHRASE = re.compile(r",? and price lower than [\d.]+ dollars")
_FILLER_WORDS = """
a am an and are buy can find for get give i i'd i'm in is it like looking me my need of please show some that the to
want which with would you
"""
_FILLERS = frozenset(_FILLER_WORDS.split())


def compact_words(text: str) -> list[str]:
    """Words of a text in lower case; punctuation around them is dropped."""
    return _WORD.findall(text.lower())


def price_token(dollars: float) -> str:
    """A price as the next multiple of ten: 27.5 and 30 are "p30"."""
    return f"p{math.ceil(dollars / 10) * 10}"


def highest_price(product: Product) -> float:
    """The highest price on a product's tag: whoever pays less than that has read the tag with care."""
    numbers = re.findall(r"\d+(?:\.\d+)?", product.price_tag.replace(",", ""))
    return max((float(number) for number in numbers), default=product.price)


def goal_words(goal: Goal) -> list[str]:
    """Words of an instruction without fillers and price: wish, option names and values; at most `GOAL_WORDS`."""
    words = compact_words(_PRICE_PHRASE.sub("", goal.instruction))
    return [word for word in words if word not in _FILLERS][:GOAL_WORDS]


def goal_text(goal: Goal) -> str:
    """A goal in few words: "goal slim mug color red under p40"."""
    limit = ["under", price_token(goal.price_upper)] if goal.price_upper < NO_LIMIT else []
    return " ".join(["goal", *goal_words(goal), *limit])


def title_words(product: Product, limit: int) -> list[str]:
    """First words of a title, without the brand."""
    brand, words = set(compact_words(product.brand)), compact_words(product.title)
    return ([word for word in words if word not in brand] or words)[:limit]


def value_name(value: str) -> str:
    """An option value in compact words; as it is when it has none."""
    return " ".join(compact_words(value)) or value


def page_text(page: Page, goal: Goal) -> str:
    """The compact rendering of a page; the goal decides only which of too many option values are shown."""
    match page.kind:
        case "search":
            parts = [["start"], ["search"]]
        case "results":
            parts = _results(page)
        case "item":
            parts = _item(page, goal)
        case "done":
            parts = [["done"]]
        case _:
            parts = [[page.kind, *_sub_page(page)[:SUB_PAGE_WORDS]], ["prev", "back"]]
    return " ; ".join(" ".join(part) for part in parts)


def _results(page: Page) -> list[list[str]]:
    rows: list[str] = []
    for place, product in enumerate(page.shown, start=1):
        seen = ["seen"] if product.asin.lower() in page.seen else []
        rows += [f"r{place}", *seen, *title_words(product, RESULT_TITLE_WORDS), price_token(highest_price(product))]
    turns = ["prev", "next"] if page.number > 1 else ["next"]
    # A shopper may turn pages for ever; all that come after the last results look the same.
    number = str(min(page.number, RESULTS_PAGES))
    return [["results", number], rows or ["none"], [*turns, "back"]]


def _item(page: Page, goal: Goal) -> list[list[str]]:
    product = page.opened
    head = ["item", *title_words(product, ITEM_TITLE_WORDS), price_token(highest_price(product))]
    options = [
        [*compact_words(name), *_listed(_shown_values(values, page, goal))] for name, values in product.options.items()
    ]
    chosen = _listed(page.chosen[name.lower()] for name in product.options if name.lower() in page.chosen) or ["none"]
    return [head, *options, ["chosen", *chosen], [name for name in BUTTONS if name != "next"]]


def _shown_values(values: Sequence[str], page: Page, goal: Goal) -> list[str]:
    """All values while they are few; of many, what is chosen and what the goal's words spell, then the first."""
    wanted = set(compact_words(goal.instruction))

    def use(value: str) -> float:
        words = value_name(value).split()
        return 2.0 if value in page.chosen.values() else sum(word in wanted for word in words) / len(words)

    kept = set(sorted(values, key=use, reverse=True)[:OPTION_VALUES])
    return [value for value in values if value in kept]


def _listed(values: Iterable[str]) -> list[str]:
    return " , ".join(value_name(value) for value in values).split()


def _sub_page(page: Page) -> list[str]:
    product = page.opened
    match page.kind:
        case "description":
            text = product.description
        case "features":
            text = " ".join(product.bullets)
        case _:
            text = " ".join(f"{review.title} {review.body}" for review in product.reviews)
    return compact_words(text) or ["none"]


def compact_clicks(page: Page) -> Mapping[str, str]:
    """What can be clicked, compact name -> the page's own label; buttons first, then products or option values."""
    labels = clickables(page)
    clicks = {name: text.lower() for name, text in BUTTONS.items() if text.lower() in labels}
    places = {product.asin.lower(): f"r{place}" for place, product in enumerate(page.shown, start=1)}
    for label, (action, _) in labels.items():
        if action in ("open", "choose"):
            clicks.setdefault(places[label] if action == "open" else value_name(label), label)
    return clicks


def to_official(action: str, page: Page) -> str | None:
    """A compact action in the shop's own format, or None when this page has nothing of that name.

    "search slim mug" -> "search[slim mug]", "click r3" -> "click[b0001]".
    """
    verb, _, argument = " ".join(action.lower().split()).partition(" ")
    if verb == "search" and argument:
        return f"search[{argument}]"
    label = compact_clicks(page).get(argument)
    return f"click[{label}]" if verb == "click" and label is not None else None


def from_official(action: str, page: Page) -> str:
    """An action of the shop's own format in compact words; the inverse of `to_official` on this page.

    Raises:
        ValueError: the page has no such button, product or option value.
    """
    verb, _, argument = action.removesuffix("]").partition("[")
    if verb == "search":
        return f"search {argument}"
    for name, label in compact_clicks(page).items():
        if label == argument:
            return f"click {name}"
    raise ValueError(f"{action!r} has no compact name on a {page.kind} page; it offers {', '.join(clickables(page))}")


def compact_vocabulary() -> tuple[str, ...]:
    """Every token of compact observations, goals and actions on the embedded data, sorted."""
    prices = [f"p{dollars}" for dollars in range(10, HIGHEST_PRICE + 1, 10)]
    places = [f"r{place}" for place in range(1, PAGE_PRODUCTS + 1)]
    numbers = [str(number) for number in range(1, RESULTS_PAGES + 1)]
    return tuple(sorted({*PAGE_WORDS, *prices, *places, *numbers, *lexicon.vocabulary()}))
