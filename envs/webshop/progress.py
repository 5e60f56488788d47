"""How far a shopper is from success: the yardstick that tells right steps from wrong ones.

It knows which products would be worth everything, so it may grade demonstrations and tests but never help an agent.
"""

from __future__ import annotations

import math

from envs.webshop.env import World
from envs.webshop.pages import PAGE_SIZE, Page
from envs.webshop.schema import Goal, Product


class Progress:
    """Distances to success for one goal; what is found out about a product is remembered."""

    def __init__(self, world: World, goal: Goal) -> None:
        self.world = world
        self.goal = goal
        self._clicks: dict[str, int | None] = {}

    def forward(self, before: Page, after: Page) -> bool:
        """Whether a step brought success nearer."""
        return self.steps_to_go(after) < self.steps_to_go(before)

    def steps_to_go(self, page: Page) -> float:
        """Fewest steps to a purchase with reward 1; infinite after another purchase.

        A search for the right words is assumed to show the goal's own product on its first page.
        """
        if page.kind == "done":
            return 0.0 if page.score == 1.0 else math.inf
        from_search = 2.0 + self._purchase(self.world.shop.by_asin[self.goal.asin.lower()])
        match page.kind:
            case "search":
                return from_search
            case "results":
                return min(from_search, self._from_results(page))
            case "item":
                return min(from_search, 1.0 + self._from_results(page), self._from_item(page))
            case _:
                return min(from_search, 1.0 + self._from_item(page))

    def _from_results(self, page: Page) -> float:
        walks = (
            abs(place // PAGE_SIZE - (page.number - 1)) + 1 + self._purchase(product)
            for place, product in enumerate(page.hits)
        )
        return min(walks, default=math.inf)

    def _from_item(self, page: Page) -> float:
        if self._options(page.opened) is None:
            return math.inf
        if self.world.judge(page, self.goal).total == 1.0:
            return 1.0
        wanted = self._offered(page.opened)
        return 1.0 + max(1, sum(page.chosen.get(name) != value for name, value in wanted.items()))

    def _purchase(self, product: Product) -> float:
        """Steps from the freshly opened product to its purchase; infinite when it can never be worth everything."""
        options = self._options(product)
        return math.inf if options is None else options + 1.0

    def _options(self, product: Product) -> int | None:
        """How many options have to be clicked on a right product; None for one that is not right."""
        if product.asin not in self._clicks:
            wanted = self._offered(product)
            right = (
                product.price <= self.goal.price_upper
                and self.world.judge(Page("item", product=product, chosen=wanted), self.goal).total == 1.0
            )
            self._clicks[product.asin] = len(wanted) if right else None
        return self._clicks[product.asin]

    def _offered(self, product: Product) -> dict[str, str]:
        """The goal's options as far as the product has them."""
        return {name: value for name, value in self.goal.options.items() if value in product.options.get(name, ())}
