"""WebShop's pages: a state machine over immutable pages, and the text of each page.

    search --search--> results --click asin--> item --click description | features | reviews--> sub-page
    item --click buy now--> done ;  every page but the last leads back, and searching works on every page

States, buttons and texts are those of princeton-nlp/WebShop in its "text" observation mode. Left out: its special
search keywords in angle brackets (<r>, <a>, <c>, <q>), which ask the original server for random products or whole
categories.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from envs.webshop.schema import Goal, Product
from envs.webshop.search import HITS, SearchIndex, search_text

PageKind = Literal["search", "results", "item", "description", "features", "reviews", "done"]

Effect = Literal["open", "choose", "turn", "leave", "restart", "item", "description", "features", "reviews", "done"]
"""What a click does: open a product, choose a value, turn the page, leave the product, start again, or show a page."""

PAGE_SIZE = 10
SEPARATOR = " [SEP] "
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
_SUB_PAGE_LINKS: dict[str, tuple[Effect, str]] = {
    "description": ("description", ""),
    "features": ("features", ""),
    "reviews": ("reviews", ""),
}

_ACTION = re.compile(r"(.+)\[(.+)\]")
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Page:
    """Where a shopper is.

    Attributes:
        kind: which page.
        keywords: of the last search; empty before one.
        number: of the results page, from 1; 0 before a search.
        hits: all products found, best first.
        product: the opened product.
        chosen: option values clicked on this product, by option name.
        seen: asins opened since the search page was last left.
        score: reward of the purchase, on the last page only.
    """

    kind: PageKind = "search"
    keywords: str = ""
    number: int = 0
    hits: tuple[Product, ...] = field(default=(), repr=False)
    product: Product | None = None
    chosen: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    seen: frozenset[str] = frozenset()
    score: float | None = None

    @property
    def shown(self) -> tuple[Product, ...]:
        """Products on this results page; none after the last one (the shop lets a shopper walk there)."""
        return self.hits[(self.number - 1) * PAGE_SIZE : self.number * PAGE_SIZE]

    @property
    def opened(self) -> Product:
        """The product of an item page, its sub-pages, or the purchase."""
        if self.product is None:
            raise ValueError(f"no product is open on a {self.kind} page")
        return self.product


class Shop:
    """A catalogue that can be searched and clicked through; shared by all episodes of a process."""

    def __init__(self, products: Sequence[Product]) -> None:
        """Open the shop.

        Args:
            products: the catalogue; its order breaks ties of the search.

        Raises:
            ValueError: the catalogue is empty.
        """
        self.products = tuple(products)
        self.index = SearchIndex([search_text(product) for product in self.products])

    @cached_property
    def by_asin(self) -> Mapping[str, Product]:
        """Products by their identifier in lower case, as clicks name them."""
        return {product.asin.lower(): product for product in self.products}

    def follow(self, page: Page, action: str) -> Page | None:
        """The page that "search[keywords]" or "click[label]" leads to; None for anything else (a no-op)."""
        match = _ACTION.match(action.strip().lower())
        if match is None or page.kind == "done":
            return None
        verb, argument = match.groups()
        if verb == "search":
            return self.search(page, argument)
        return self.click(page, argument) if verb == "click" else None

    def search(self, page: Page, keywords: str) -> Page:
        """First results page for the keywords; product and options are let go."""
        hits = tuple(self.products[position] for position in self.index.search(keywords, HITS))
        return Page("results", keywords, 1, hits, seen=page.seen)

    def click(self, page: Page, label: str) -> Page | None:
        """The page that a click leads to, or None where nothing of that name can be clicked.

        Args:
            page: the current page.
            label: text of a button, product or option value, in any case. "buy now" leads to the last page without a
                score: what the purchase is worth is not the shop's to say.
        """
        target = clickables(page).get(label.lower())
        if target is None:
            return None
        action, value = target
        match action:
            case "open":
                return replace(page, kind="item", product=self.by_asin[value], seen=page.seen | {value})
            case "choose":
                return replace(page, chosen=MappingProxyType({**page.chosen, value: label.lower()}))
            case "turn":
                return replace(page, number=page.number + int(value))
            case "leave":
                return Page("results", page.keywords, page.number, page.hits, seen=page.seen)
            case "restart":
                return Page()
            case kind:
                return replace(page, kind=kind)


def clickables(page: Page) -> Mapping[str, tuple[Effect, str]]:
    """What can be clicked, in the order of the page: lower-case label -> (what it does, with what).

    Buttons and products come first, then option values. A value shadows a button of the same name and a value of an
    earlier option, as in the original, which keeps one table from text to element.
    """
    links: dict[str, tuple[Effect, str]] = {BACK.lower(): ("restart", "")}
    match page.kind:
        case "results":
            if page.number > 1:
                links[PREVIOUS.lower()] = ("turn", "-1")
            links[NEXT.lower()] = ("turn", "1")
            for product in page.shown:
                links[product.asin.lower()] = ("open", product.asin.lower())
        case "item":
            links |= {PREVIOUS.lower(): ("leave", ""), **_SUB_PAGE_LINKS, BUY.lower(): ("done", "")}
            for name, values in page.opened.options.items():
                links |= {value: ("choose", name.lower()) for value in values}
        case "description" | "features" | "reviews":
            links[PREVIOUS.lower()] = ("item", "")
        case _:
            links = {}
    return links


def texts(page: Page, goal: Goal) -> list[str]:
    """The visible strings of a page in order, empty ones dropped."""
    if page.kind == "search":
        strings = ["WebShop", "Instruction:", goal.instruction, "Search"]
    elif page.kind == "done":
        code = ["Your code:", "None", "(Paste it in your MTurk interface.)"]
        strings = ["Thank you for shopping with us!", *code, "Your score (min 0.0, max 1.0)", str(page.score)]
    else:
        strings = ["Instruction:", goal.instruction, BACK, *_body(page)]
    return [text for text in (string.strip() for string in strings) if text]


def _body(page: Page) -> list[str]:
    if page.kind == "results":
        return _results(page)
    if page.kind == "item":
        return _item(page.opened)
    product = page.opened
    match page.kind:
        case "description":
            content = [product.description]
        case "features":
            content = list(product.bullets) or ["No Features"]
        case _:
            content = [text for r in product.reviews for text in (f'"{r.title}"', str(r.stars), r.body)]
            content = content or ["No reviews found"]
    return [PREVIOUS, *content]


def _results(page: Page) -> list[str]:
    head = f"Page {page.number} (Total results: {len(page.hits)})"
    turns = [PREVIOUS, NEXT] if page.number > 1 else [NEXT]
    return [head, *turns, *(text for p in page.shown for text in (p.asin, p.title, p.price_tag))]


def _item(product: Product) -> list[str]:
    options = [text for name, values in product.options.items() for text in (name, *values)]
    rating = "N.A." if product.rating is None else product.rating
    facts = [product.title, f"Price: {product.price_tag}", f"Rating: {rating}"]
    return [PREVIOUS, *options, *facts, *SUB_PAGES, BUY]


def page_text(page: Page, goal: Goal) -> str:
    """A page as WebShop's "text" mode shows it: its strings joined by [SEP]."""
    return SEPARATOR.join(texts(page, goal))
