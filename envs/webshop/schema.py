"""Products and goals of WebShop, in memory (schema of princeton-nlp/WebShop, as loaded by its engine)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Review:
    """A customer review; stars from 1 to 5."""

    title: str
    stars: float
    body: str


@dataclass(frozen=True, slots=True)
class Product:
    """One product of the catalogue.

    Attributes:
        asin: identifier, at most 10 characters, lower case in observations' clicks.
        title: name as shown.
        brand: of the maker.
        category: "A › B › C".
        query: the search phrase it was listed under, lower case.
        description: full text.
        bullets: bullet points ("Features").
        price: in dollars, the one that counts for the reward (drawn once when two are listed).
        price_tag: as shown, "$12.00" or "$10.00 to $20.00".
        options: option name -> values, both lower case, '/' already replaced by ' | '.
        attributes: what the reward compares goals with; ("DUMMY_ATTR",) where the data name none.
        rating: average stars; None when unrated ("N.A." on the page).
        reviews: customer reviews.
    """

    asin: str
    title: str
    brand: str
    category: str
    query: str
    description: str
    bullets: tuple[str, ...]
    price: float
    price_tag: str
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    rating: float | None = None
    reviews: tuple[Review, ...] = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """What a shopper wants.

    Attributes:
        asin: product it was written for.
        instruction: in words, with options and price limit.
        attributes: wanted attributes, at least one.
        options: wanted option values by option name (values alone count for the reward).
        price_upper: limit in dollars; 1,000,000 when there is none.
        category, query, title: of the product it was written for; the reward's type factor compares them.
    """

    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    price_upper: float
    category: str
    query: str
    title: str
