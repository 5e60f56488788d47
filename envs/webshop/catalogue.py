"""The embedded catalogue: 1,000 products in the official schema, made from the lexicon by one seed.

Products come in families of three: same type, same two leading attributes and mostly the same options, yet one is
cheap, one middling and one dear, and each has further attributes of its own. A search that finds one of a family finds
the others, so price, options and the remaining attributes have to be looked at.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from envs.webshop import words
from envs.webshop.schema import Product, Review
from harness.seeding import python_random

SIZE = 1000
PRICE_LEVELS = (range(0, 4), range(4, 7), range(7, 10))
"""Tens of dollars that the members of a family cost, one level each: cheap, middling, dear."""
RANGE_SHARE = 0.1
TWO_OPTIONS_SHARE = 0.75
OWN_OPTIONS_SHARE = 0.15
_ASIN_LETTERS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class _Family:
    """What its members have in common."""

    kind: words.ProductType
    aisle: words.Aisle
    shelf: str
    leading: tuple[str, ...]
    options: dict[str, tuple[str, ...]]


@cache
def embedded_catalogue(seed: int = 0) -> tuple[Product, ...]:
    """The catalogue; equal in every process, made once in each.

    Args:
        seed: of everything that is drawn.

    Returns:
        1,000 products in shuffled order, so that the place in the list tells nothing.
    """
    rng = python_random("webshop-catalogue", seed)
    asins = _asins(rng)
    share, extra = divmod(SIZE, len(words.product_types()))
    products: list[Product] = []
    for place, (aisle, shelf, kind) in enumerate(_places()):
        for member in range(share + (place < extra)):
            level = member % len(PRICE_LEVELS)
            if level == 0:
                leading = tuple(rng.sample(kind.attributes, 2))
                family = _Family(kind, aisle, shelf, leading, _options(aisle, rng))
            products.append(_product(next(asins), family, level, rng))
    rng.shuffle(products)
    return tuple(products)


def _places() -> Iterator[tuple[words.Aisle, str, words.ProductType]]:
    """Each type with its aisle and shelf."""
    for aisle in words.AISLES:
        for shelf, kinds in aisle.shelves.items():
            yield from ((aisle, shelf, kind) for kind in kinds)


def _product(asin: str, family: _Family, level: int, rng: random.Random) -> Product:
    kind, aisle = family.kind, family.aisle
    further = rng.sample([word for word in kind.attributes if word not in family.leading], rng.choice((1, 2)))
    shown = [*family.leading, *(further[:1] if len(further) == 2 and rng.random() < 0.5 else [])]
    hidden = [word for word in further if word not in shown]
    rng.shuffle(shown)
    brand = rng.choice(words.BRANDS)
    price, tag = _price(PRICE_LEVELS[level], rng)
    description = rng.choice(words.DESCRIPTIONS).format(
        type=kind.name, brand=brand, purpose=aisle.purpose, attributes=_enumerate(shown + hidden)
    )
    first_bullet = rng.choice(words.FIRST_BULLETS).format(attributes=_enumerate(hidden))
    reviews = tuple(_review(kind, shown + hidden, rng) for _ in range(rng.randrange(4)))
    return Product(
        asin=asin,
        title=_title(brand, shown, kind.name, rng),
        brand=brand,
        category=" › ".join((aisle.department, family.shelf, kind.name.title())),
        query=kind.name,
        description=description,
        bullets=tuple(text.capitalize() for text in (first_bullet, *rng.sample(words.BULLETS, 2))),
        price=price,
        price_tag=tag,
        options=_options(aisle, rng) if rng.random() < OWN_OPTIONS_SHARE else family.options,
        attributes=tuple(shown + hidden),
        rating=round(sum(review.stars for review in reviews) / len(reviews), 1) if reviews else None,
        reviews=reviews,
    )


def _title(brand: str, shown: list[str], name: str, rng: random.Random) -> str:
    """Brand, attributes and type in one of three orders; the type never comes first."""
    orders = (
        (brand, *shown, name),
        (*shown, name, brand),
        (*shown[:1], brand, *shown[1:], name),
    )
    return " ".join(rng.choice(orders)).title()


def _price(decades: range, rng: random.Random) -> tuple[float, str]:
    """A price in dollars and its tag.

    Both ends of a range lie within one ten, as limits are multiples of ten: whoever reads the tag knows whether the
    price that was drawn is below the limit.
    """
    decade = rng.choice(decades)
    lowest = max(500, 1000 * decade + 50)
    cents = rng.randrange(lowest, 1000 * decade + 950)
    if rng.random() >= RANGE_SHARE:
        return cents / 100, f"${cents / 100:.2f}"
    low, high = rng.randrange(lowest, cents + 1), rng.randrange(cents + 1, 1000 * decade + 951)
    return cents / 100, f"${low / 100:.2f} to ${high / 100:.2f}"


def _options(aisle: words.Aisle, rng: random.Random) -> dict[str, tuple[str, ...]]:
    """One or two options with 2 to 5 values each, at most half of the lexicon's, in the lexicon's order."""
    names = aisle.options if rng.random() < TWO_OPTIONS_SHARE else (rng.choice(aisle.options),)
    options = {}
    for name in names:
        values = words.OPTION_VALUES[name]
        chosen = rng.sample(values, rng.randint(2, min(5, 1 + len(values) // 2)))
        options[name] = tuple(value for value in values if value in chosen)
    return options


def _review(kind: words.ProductType, attributes: list[str], rng: random.Random) -> Review:
    stars, title, body = rng.choice(words.REVIEWS)
    return Review(title, float(stars), body.format(type=kind.name, attribute=rng.choice(attributes)))


def _enumerate(attributes: list[str]) -> str:
    return " and ".join(", ".join(attributes).rsplit(", ", 1))


def _asins(rng: random.Random) -> Iterator[str]:
    """Distinct identifiers of the official form, without end."""
    seen: set[str] = set()
    while True:
        asin = "B0" + "".join(rng.choice(_ASIN_LETTERS) for _ in range(8))
        if asin not in seen:
            seen.add(asin)
            yield asin
