"""The lexicon keeps what the reward, the search engine and a very small policy rely on."""

import itertools

import pytest
import snowballstemmer
from thefuzz import fuzz

from envs.webshop import words
from envs.webshop.reward import normalize_color

ATTRIBUTE_THRESHOLD = 85
# fmt: off
LUCENE_STOP_WORDS = {
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
}
# fmt: on


def content_words() -> list[str]:
    """Distinct words that a query can be made of."""
    values = [word for values in words.OPTION_VALUES.values() for value in values for word in value.split()]
    brands = [brand.lower() for brand in words.BRANDS]
    return sorted({*words.attributes(), *words.nouns(), *values, *brands})


def test_vocabulary_is_small_enough_for_the_mini_tokenizer():
    vocabulary = words.vocabulary()
    assert len(vocabulary) <= 300
    assert list(vocabulary) == sorted(set(vocabulary))
    assert all(word.isalpha() and word.isascii() and word.islower() for word in vocabulary)


def test_vocabulary_holds_every_word_of_the_lexicon():
    assert set(content_words()) <= set(words.vocabulary())
    assert {"with", "price", "lower", "than", "dollars", "color"} <= set(words.vocabulary())


def test_vocabulary_leaves_out_the_blanks_of_the_templates():
    assert not {"attributes", "attribute", "purpose", "brand"} & set(words.vocabulary())


def test_two_words_with_one_stem_would_be_one_word_to_the_search():
    stemmer = snowballstemmer.stemmer("porter")
    stems = stemmer.stemWords(content_words())
    assert len(set(stems)) == len(stems)


def test_a_stop_word_could_not_be_searched_for():
    assert not set(content_words()) & LUCENE_STOP_WORDS


def test_an_attribute_inside_another_word_would_count_for_products_that_lack_it():
    """The reward accepts an attribute wherever its letters stand in title, bullets or description."""
    clashes = [(a, word) for a in words.attributes() for word in words.vocabulary() if a != word and a in word]
    assert clashes == []


def test_an_attribute_in_a_template_would_be_true_of_every_product():
    texts = [*words.DESCRIPTIONS, *words.FIRST_BULLETS, *words.BULLETS, *(aisle.purpose for aisle in words.AISLES)]
    said = {word for text in texts for word in words.words_of(text)}
    assert not said & {*words.attributes(), *words.nouns()}
    assert not said & {word for values in words.OPTION_VALUES.values() for value in values for word in value.split()}


def test_similar_attributes_would_be_taken_for_each_other():
    pairs = itertools.combinations(words.attributes(), 2)
    assert [pair for pair in pairs if fuzz.token_set_ratio(*pair) > ATTRIBUTE_THRESHOLD] == []


def test_similar_option_values_would_be_taken_for_each_other():
    """A shade of a colour is the exception: to the official reward it is the colour."""
    for values in words.OPTION_VALUES.values():
        close = [
            pair for pair in itertools.combinations(values, 2) if fuzz.token_set_ratio(*pair) > ATTRIBUTE_THRESHOLD
        ]
        assert close in ([], [("blue", "dark blue")])


def test_values_of_an_option_are_different_colours_or_none():
    """The reward reduces a value to its first colour word: two values with the same one would be interchangeable."""
    for values in words.OPTION_VALUES.values():
        reduced = [normalize_color(value) for value in values if value != "dark blue"]
        assert len(set(reduced)) == len(reduced)
    assert normalize_color("dark blue") == "blue"


def test_types_share_no_noun_and_no_type_lacks_attributes():
    types = words.product_types()
    assert 30 <= len(types) <= 40
    assert sum(len(kind.name.split()) for kind in types) == len(words.nouns())
    assert all(len(kind.attributes) == len(set(kind.attributes)) == 8 for kind in types)


def test_attributes_are_shared_by_types():
    uses = [word for kind in words.product_types() for word in kind.attributes]
    shared = [word for word in words.attributes() if uses.count(word) > 1]
    assert len(shared) >= 45


def test_option_names_of_the_aisles_have_values():
    assert {name for aisle in words.AISLES for name in aisle.options} == set(words.OPTION_VALUES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Slim MUG, $12.50", ["slim", "mug"]), ("color: dark blue", ["color", "dark", "blue"]), ("", [])],
)
def test_words_of_a_text(text, expected):
    assert words.words_of(text) == expected
