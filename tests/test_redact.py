"""A secret must not survive, and what is none must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.redact import MASK, known_secrets, redact, redact_argv

SECRETS = [
    ("--model openai:gpt --api-key=sk-1234567890abcdef", "1234567890abcdef"),
    ("Authorization: Bearer abc.def.ghi", "abc.def.ghi"),
    ("authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ('{"api_key": "s3cr3t-value"}', "s3cr3t-value"),
    ("OPENAI_API_KEY=abcdef", "abcdef"),
    ("https://me:pass@host/v1?token=qwerty&x=1", "qwerty"),
    ("https://me:pass@host/v1", "me:pass"),
    ("bearer abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
    ("hf_abcdefghijklmnop", "abcdefghijklmnop"),
    ("ghp_abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    ("password: hunter2", "hunter2"),
]
HARMLESS = [
    "max_tokens=40",
    "-o monkey=1",
    "the key: C major",
    "a token limit of 40",
    "python -m harness run --method strata --env webshop --seeds 3",
    "basic cotton shirt for the bearer of news",
    "http://localhost:8000/v1",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_are_masked_and_stay_masked(text, secret):
    clean = redact(text)
    assert secret not in clean
    assert MASK in clean
    assert redact(clean) == clean


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_left_alone(text):
    assert redact(text) == text


def test_the_argument_after_an_option_that_announces_a_secret_is_masked():
    argv = ["run", "--api-key", "abc", "--max-tokens", "40", "--token", "--limit", "3"]
    assert redact_argv(argv) == ["run", "--api-key", MASK, "--max-tokens", "40", "--token", "--limit", "3"]


def test_values_of_secret_environment_variables_are_masked_wherever_they_occur():
    known = known_secrets({"MY_TOKEN": "tralala-42", "PATH": "/usr/bin", "SHORT_KEY": "abc"})
    assert known == ("tralala-42",)
    assert redact("model@tralala-42/x", known=known) == f"model@{MASK}/x"


@given(st.text())
def test_redaction_is_idempotent(text):
    assert redact(redact(text)) == redact(text)
