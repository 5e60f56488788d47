"""The embedded catalogue: schema, decoys, determinism."""

import itertools
import re
from collections import Counter

import pytest

from envs.webshop import words
from envs.webshop.catalogue import SIZE, embedded_catalogue
from envs.webshop.schema import Product

CATALOGUE = embedded_catalogue()
TAG = re.compile(r"\$\d+\.\d\d( to \$\d+\.\d\d)?")


def all_texts(product: Product) -> list[str]:
    options = [text for name, values in product.options.items() for text in (name, *values)]
    reviews = [text for review in product.reviews for text in (review.title, review.body)]
    return [
        product.title,
        product.brand,
        product.category,
        product.query,
        product.description,
        *product.bullets,
        product.price_tag,
        *options,
        *product.attributes,
        *reviews,
    ]


def amounts(product: Product) -> list[float]:
    return [float(amount) for amount in re.findall(r"\d+\.\d\d", product.price_tag)]


def test_a_thousand_products_with_identifiers_of_their_own():
    assert len(CATALOGUE) == SIZE == 1000
    assert len({product.asin for product in CATALOGUE}) == SIZE
    assert all(len(product.asin) == 10 for product in CATALOGUE)


def test_types_are_stocked_evenly():
    counts = Counter(product.query for product in CATALOGUE)
    assert set(counts) == {kind.name for kind in words.product_types()}
    assert set(counts.values()) == {27, 28}


def test_every_word_is_in_the_vocabulary():
    known = set(words.vocabulary())
    said = {word for product in CATALOGUE for text in all_texts(product) for word in words.words_of(text)}
    assert said <= known


@pytest.mark.parametrize("product", CATALOGUE[::50], ids=lambda product: product.asin)
def test_a_product_is_what_its_texts_say(product):
    title = words.words_of(product.title)
    shown = [word for word in product.attributes if word in title]
    assert sorted(title) == sorted([product.brand.lower(), *shown, *product.query.split()])
    assert 2 <= len(shown) <= 3
    assert 3 <= len(product.attributes) <= 4
    assert all(word in product.description for word in product.attributes)
    assert all(word in product.bullets[0].lower() for word in product.attributes if word not in shown)
    assert product.category.count(" › ") == 2


def test_options_come_with_two_to_five_values_of_the_lexicon():
    assert {len(product.options) for product in CATALOGUE} == {1, 2}
    for product in CATALOGUE:
        for name, values in product.options.items():
            assert 2 <= len(values) <= 5
            assert set(values) <= set(words.OPTION_VALUES[name])


def test_prices_lie_between_5_and_100_dollars_and_within_their_tag():
    for product in CATALOGUE:
        assert TAG.fullmatch(product.price_tag)
        assert 5 <= product.price < 100
        assert amounts(product)[0] <= product.price <= amounts(product)[-1]


def test_a_price_range_never_straddles_a_limit():
    """Limits are multiples of ten: the tag alone must tell whether the hidden price is below one."""
    ranges = [amounts(product) for product in CATALOGUE if len(amounts(product)) == 2]
    assert 60 <= len(ranges) <= 140
    assert all(low < high and low // 10 == high // 10 and low % 10 for low, high in ranges)


def test_ratings_are_means_of_the_reviews():
    unrated = [product for product in CATALOGUE if not product.reviews]
    assert unrated
    assert all(product.rating is None for product in unrated)
    product = next(product for product in CATALOGUE if len(product.reviews) == 2)
    assert product.rating == pytest.approx(sum(review.stars for review in product.reviews) / 2)


def test_most_products_have_a_double_that_differs_in_price():
    """Same type, options and leading attributes at another price: whoever ignores the price buys the wrong one."""
    doubled = 0
    for product in CATALOGUE:
        doubled += any(
            other.query == product.query
            and other.options == product.options
            and len(set(other.attributes) & set(product.attributes)) >= 2
            and abs(other.price - product.price) > 10
            for other in CATALOGUE
        )
    assert doubled > 0.75 * SIZE


def test_the_place_in_the_list_tells_nothing():
    """Ties of the search are broken by document order."""
    neighbours = sum(a.query == b.query for a, b in itertools.pairwise(CATALOGUE))
    assert neighbours < 0.06 * SIZE


def test_the_seed_decides_and_a_catalogue_is_made_once():
    assert embedded_catalogue() is embedded_catalogue()
    assert embedded_catalogue(1) != CATALOGUE
