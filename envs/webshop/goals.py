"""What shoppers want: the official goal rules, the goals of the embedded catalogue, and how goals are split.

Rules of princeton-nlp/WebShop (64fa2a5): a goal names attributes, option values and a price limit; its text is an
instruction, then the option phrase, then the price phrase. Splits are drawn once and are the same for every worker: the
published harnesses shuffle per worker and so train on test goals.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from envs.webshop.schema import Goal, Product
from envs.webshop.words import OPENINGS, words_of
from harness.seeding import python_random

NO_LIMIT = 1_000_000.0
TEST_GOALS = 500
VALIDATION_GOALS = 500
TRAIN_GOALS = 4000
OFFICIAL_VALIDATION_GOALS = 1000
OFFICIAL_SHUFFLE_SEED = 233
HIDDEN_SHARE = 0.05
SINGLE_SHARE = 0.2
INDIFFERENT_SHARE = 0.1
_WALKS = 40

_Sibling = tuple[Product, frozenset[str]]
_Meaning = tuple[str, frozenset[str], tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class GoalSplits:
    """Goals by split, disjoint by text.

    Attributes:
        train, validation, test: goals in a fixed order.
        removed: goals left out of train or validation because a later split has the same text.
    """

    train: tuple[Goal, ...]
    validation: tuple[Goal, ...]
    test: tuple[Goal, ...]
    removed: int = 0


def price_limit(price: float, rng: random.Random) -> float:
    """A limit above a price, by the official rule.

    Args:
        price: in dollars.
        rng: two of the next four multiples of ten (10 to 990) are drawn; the larger is the limit.

    Returns:
        The limit in dollars; `NO_LIMIT` when fewer than two multiples are left.
    """
    first = int(price // 10) + 1
    above = [10.0 * step for step in range(first, min(first + 4, 100))]
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def option_phrase(options: Mapping[str, str]) -> str:
    """The options as in "slim mug with color: red, and size: large", from " with" on; empty without options."""
    return " with " + ", and ".join(f"{name}: {value}" for name, value in options.items()) if options else ""


def price_phrase(limit: float) -> str:
    """The limit as in "slim mug, and price lower than 40.00 dollars", from the comma on; empty without a limit."""
    return f", and price lower than {limit:.2f} dollars" if limit < NO_LIMIT else ""


def goal_for(
    product: Product, wish: str, attributes: Sequence[str], options: Mapping[str, str], price_upper: float
) -> Goal:
    """A goal for a product; `wish` is its text as far as options and price."""
    return Goal(
        asin=product.asin,
        instruction=wish + price_phrase(price_upper),
        attributes=tuple(attributes),
        options=dict(options),
        price_upper=price_upper,
        category=product.category,
        query=product.query,
        title=product.title,
    )


def official_splits(goals: Sequence[Goal]) -> GoalSplits:
    """The official split: shuffled with seed 233; 0-499 test, 500-1499 validation, the rest train.

    A text that occurs in several splits stays in the last of them (test before validation before train).
    """
    shuffled = list(goals)
    random.Random(OFFICIAL_SHUFFLE_SEED).shuffle(shuffled)
    end = TEST_GOALS + OFFICIAL_VALIDATION_GOALS
    test, validation, train = shuffled[:TEST_GOALS], shuffled[TEST_GOALS:end], shuffled[end:]
    seen = {goal.instruction for goal in test}
    kept_validation = [goal for goal in validation if goal.instruction not in seen]
    seen |= {goal.instruction for goal in kept_validation}
    kept_train = [goal for goal in train if goal.instruction not in seen]
    removed = len(validation) - len(kept_validation) + len(train) - len(kept_train)
    return GoalSplits(tuple(kept_train), tuple(kept_validation), tuple(test), removed)


def embedded_goals(products: Sequence[Product], seed: int = 0) -> GoalSplits:
    """Goals of the embedded catalogue: 500 test and 500 validation goals of as many different products, 4,000 to train.

    No two goals want the same attributes and options of the same type, whatever their wording and price: splits are
    disjoint by meaning, not only by text. Among the products of the type that have the attributes, one has the options
    but is too dear and one lacks an option value, so that neither price nor options can be ignored.

    Args:
        products: of `embedded_catalogue`.
        seed: of everything that is drawn.

    Raises:
        ValueError: the catalogue is too small to give that many goals.
    """
    rng = python_random("webshop-goals", seed)
    siblings: dict[str, list[_Sibling]] = defaultdict(list)
    for product in products:
        siblings[product.query].append((product, frozenset(product.attributes)))
    taken: set[_Meaning] = set()

    def draw(count: int, *, distinct: bool) -> tuple[Goal, ...]:
        """`count` new goals, walking over the products in ever new order; if `distinct`, no product twice."""
        drawn: list[Goal] = []
        served: set[str] = set()
        for _ in range(_WALKS):
            for product in rng.sample(products, len(products)):
                if product.asin in served:
                    continue
                goal = _contested_goal(product, siblings[product.query], taken, rng)
                if goal is None:
                    continue
                drawn.append(goal)
                if distinct:
                    served.add(product.asin)
                if len(drawn) == count:
                    return tuple(drawn)
        raise ValueError(f"{len(products)} products gave {len(drawn)} of {count} goals; pass a larger catalogue")

    test = draw(TEST_GOALS, distinct=True)
    validation = draw(VALIDATION_GOALS, distinct=True)
    return GoalSplits(train=draw(TRAIN_GOALS, distinct=False), validation=validation, test=test)


def _contested_goal(
    product: Product, siblings: Sequence[_Sibling], taken: set[_Meaning], rng: random.Random
) -> Goal | None:
    """One draw of a goal for a product, added to `taken`; None if it is not new or if no other product nearly fits."""
    limit = price_limit(product.price, rng)
    if all(other.price <= limit for other, _ in siblings):
        return None
    attributes, options = _wanted_attributes(product, rng), _wanted_options(product, rng)
    wanted = frozenset(attributes)
    meaning = (product.query, wanted, tuple(options.items()))
    if meaning in taken:
        return None
    rivals = [other for other, theirs in siblings if wanted <= theirs]
    offering = [other for other in rivals if offers(other, options)]
    if len(offering) == len(rivals) or all(other.price <= limit for other in offering):
        return None
    taken.add(meaning)
    wish = f"{rng.choice(OPENINGS)} {' '.join(attributes)} {product.query}{option_phrase(options)}"
    return goal_for(product, wish, attributes, options, limit)


def _wanted_attributes(product: Product, rng: random.Random) -> list[str]:
    """Two attributes of the title, or one, or one of them and one that only the product's pages tell."""
    title = words_of(product.title)
    shown = [word for word in product.attributes if word in title]
    hidden = [word for word in product.attributes if word not in title]
    luck = rng.random()
    if luck < HIDDEN_SHARE:
        return [rng.choice(shown), rng.choice(hidden)]
    return rng.sample(shown, 1 if luck < HIDDEN_SHARE + SINGLE_SHARE else 2)


def _wanted_options(product: Product, rng: random.Random) -> dict[str, str]:
    """A value of every option, names sorted; of two options one may not matter."""
    names = sorted(product.options)
    if len(names) == 2 and rng.random() < INDIFFERENT_SHARE:
        names = [rng.choice(names)]
    return {name: rng.choice(product.options[name]) for name in names}


def offers(product: Product, options: Mapping[str, str]) -> bool:
    """Whether a product comes with every wanted option value."""
    theirs = product.options
    return all([name in theirs and value in theirs[name] for name, value in options.items()])  # a list: twice as fast


def digest(products: Sequence[Product], goals: GoalSplits) -> str:
    """SHA-256 of products and goals as compact JSON, 64 hexadecimal digits: the identity of the data.

    Order counts, of products and goals as well as of options: it is what an agent sees.
    """
    text = json.dumps([list(products), goals], default=_plain, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON form for {type(value).__name__} {value!r}")
