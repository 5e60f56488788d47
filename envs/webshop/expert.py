"""A scripted shopper that follows a plan, good or bad: the teacher of the small policy.

A plan has four parts: what to search for, which result to take, which options to choose, and whether to look before
buying. The shopper reads only what a compact page shows and remembers nothing that it does not show, so a policy that
sees the page can do what the shopper does. Slips make it err at a known rate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from envs.webshop.compact import compact_clicks, compact_words, goal_words, highest_price, title_words, value_name
from envs.webshop.pages import PAGE_SIZE, Page
from envs.webshop.schema import Goal, Product

Query = Literal["type", "attributes", "all"]
Pick = Literal["first", "cheapest", "match"]
Options = Literal["skip", "one", "all"]
Check = Literal["buy", "look"]

_CLAUSES: dict[str, dict[str, str]] = {
    "query": {"type": "search type", "attributes": "search attributes and type", "all": "search all words"},
    "pick": {"first": "take first result", "cheapest": "take cheapest result", "match": "match attributes and price"},
    "options": {"skip": "skip options", "one": "choose one option", "all": "choose all options"},
    "check": {"buy": "just buy", "look": "check first"},
}
_QUALITY: dict[str, dict[str, float]] = {
    "query": {"type": 0.4, "attributes": 0.8, "all": 1.0},
    "pick": {"first": 0.6, "cheapest": 0.6, "match": 1.0},
    "options": {"skip": 0.0, "one": 0.3, "all": 1.0},
    "check": {"buy": 0.5, "look": 1.0},
}
_THOUGHTS = (
    "go back to item",
    "none fits go on",
    "none fits search again",
    "is first cheapest",
    "price too high go back",
    "no such go back",
    "need",
    "all done buy",
    "just try",
)
_JOINT = " , "


@dataclass(frozen=True, slots=True)
class Plan:
    """Habits of a shopper.

    Attributes:
        query: search for the type; for wanted attributes and type; for every word of the goal.
        pick: of the results not yet opened take the first; the cheapest; the one with most wanted attributes in its
            title and a price within the limit.
        options: choose none; the first wanted one; all wanted ones.
        check: buy what was opened; or look first, and go back to the results when it is too dear or lacks an option.
    """

    query: Query
    pick: Pick
    options: Options
    check: Check

    @property
    def quality(self) -> float:
        """From 0 to 1, a product of habits: one bad habit spoils a plan. It orders plans; it is no success rate."""
        return math.prod(grades[getattr(self, part)] for part, grades in _QUALITY.items())


PLANS: tuple[Plan, ...] = tuple(
    Plan(query, pick, options, check)
    for query in get_args(Query)
    for pick in get_args(Pick)
    for options in get_args(Options)
    for check in get_args(Check)
)
"""All plans, a fixed order."""

BEST = Plan("all", "match", "all", "look")
WORST = Plan("type", "first", "skip", "buy")


def plan_text(plan: Plan) -> str:
    """A plan in compact words, at most 16: "search type , take first result , skip options , just buy"."""
    return _JOINT.join(clauses[getattr(plan, part)] for part, clauses in _CLAUSES.items())


def parse_plan(text: str) -> Plan:
    """The plan that a text states.

    Raises:
        ValueError: it is not the text of a plan.
    """
    for plan in PLANS:
        if plan_text(plan) == text:
            return plan
    raise ValueError(f"no plan reads {text!r}; a plan reads like {plan_text(BEST)!r}")


def expert_vocabulary() -> tuple[str, ...]:
    """Words of plans and thoughts, sorted; with `compact.compact_vocabulary` all that the shopper can write."""
    texts = [*_THOUGHTS, *(plan_text(plan) for plan in PLANS)]
    return tuple(sorted({word for text in texts for word in text.split()}))


@dataclass(frozen=True, slots=True)
class Move:
    """What the shopper does next.

    Attributes:
        action: in compact form; `compact.to_official` gives the shop's own.
        thought: why, at most 8 words.
        follows_plan: False for a slip that the plan would not have done.
    """

    action: str
    thought: str
    follows_plan: bool


def act(plan: Plan, page: Page, goal: Goal, rng: random.Random, noise: float = 0.0) -> Move:
    """The next move on a page.

    Args:
        plan: to follow.
        page: where the shopper is; not the last page.
        goal: what is wanted.
        rng: decides slips.
        noise: probability of a slip, a random click or a search for fewer words.

    Raises:
        ValueError: the episode is over.
    """
    action, thought = _planned(plan, page, goal)
    if rng.random() < noise:
        slip = _slip(page, goal, rng)
        return Move(slip, thought if slip == action else "just try", slip == action)
    return Move(action, thought, True)


def _planned(plan: Plan, page: Page, goal: Goal) -> tuple[str, str]:
    match page.kind:
        case "search":
            words = _query(plan, goal)
            return f"search {' '.join(words)}", f"search {' '.join(words[:6])}"
        case "results":
            return _from_results(plan, page, goal)
        case "item":
            return _from_item(plan, page, goal)
        case "done":
            raise ValueError("the product is bought; there is no next move")
        case _:
            return "click prev", "go back to item"


def _query(plan: Plan, goal: Goal) -> Sequence[str]:
    match plan.query:
        case "type":
            return compact_words(goal.query)
        case "attributes":
            return [*(word for text in goal.attributes for word in compact_words(text)), *compact_words(goal.query)]
        case _:
            return goal_words(goal)


def _from_results(plan: Plan, page: Page, goal: Goal) -> tuple[str, str]:
    fresh = [(place, p) for place, p in enumerate(page.shown, start=1) if p.asin.lower() not in page.seen]
    if plan.pick == "match":
        # A result that shows no wanted attribute cannot be told from a random one: turning the page is better.
        fresh = [(place, p) for place, p in fresh if highest_price(p) <= goal.price_upper and _shown(p, goal)]
    if not fresh:
        more = page.number * PAGE_SIZE < len(page.hits)
        return ("click next", "none fits go on") if more else ("click back", "none fits search again")
    match plan.pick:
        case "first":
            place, _ = fresh[0]
            thought = f"r{place} is first"
        case "cheapest":
            place, _ = min(fresh, key=lambda hit: (highest_price(hit[1]), hit[0]))
            thought = f"r{place} is cheapest"
        case _:
            place, best = max(fresh, key=lambda hit: (len(_shown(hit[1], goal)), -hit[0]))
            thought = f"r{place} is {' '.join(_shown(best, goal)[:4])}"
    return f"click r{place}", thought


def _from_item(plan: Plan, page: Page, goal: Goal) -> tuple[str, str]:
    product = page.opened
    if plan.check == "look":
        if highest_price(product) > goal.price_upper:
            return "click prev", "price too high go back"
        lacking = [name for name, value in _wanted(product, goal) if value is None]
        if lacking:
            return "click prev", f"no such {lacking[0]} go back"
    open_options = [(name, value) for name, value in _wanted(product, goal) if value and page.chosen.get(name) != value]
    if plan.options == "all" or (plan.options == "one" and not page.chosen):
        for name, value in open_options:
            return f"click {value_name(value)}", f"need {name} {value_name(value)}"
    return "click buy", "all done buy"


def _shown(product: Product, goal: Goal) -> list[str]:
    """Wanted attributes that the title shows."""
    title = set(title_words(product, len(product.title)))
    return [attribute for attribute in goal.attributes if set(compact_words(attribute)) <= title]


def _wanted(product: Product, goal: Goal) -> list[tuple[str, str | None]]:
    """Wanted options in the goal's order with their value as this product has it, None where it lacks it."""
    return [(name, value if value in product.options.get(name, ()) else None) for name, value in goal.options.items()]


def _slip(page: Page, goal: Goal, rng: random.Random) -> str:
    """Something a careless shopper might do here."""
    clicks = list(compact_clicks(page))
    if clicks:
        return f"click {rng.choice(clicks)}"
    words = goal_words(goal)
    kept = [word for word in words if rng.random() < 0.5] or [rng.choice(words)]
    return f"search {' '.join(kept)}"
