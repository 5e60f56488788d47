"""Secrets out of what is written: keys, tokens and passwords in arguments, manifests, cassettes and transcripts.

Three nets, each of which misses things that another one catches: names that announce a secret (`--api-key X`,
`password=X`), shapes that are one (`sk-...`, `Bearer ...`, `user:password@host`), and the values of the environment
variables that hold one, wherever they occur.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

MASK = "[redacted]"
_SHORTEST = 6
"""Shorter values of environment variables are not searched for: they would blot out ordinary words."""

# Segments of a name: HF_TOKEN announces a secret, max_tokens and monkey do not.
_PREFIX = r"[A-Za-z0-9]+[-_]"
_WORD = r"(?:key|token)"
_PLAIN = r"(?:apikey|secret|password|passwd|passphrase|credentials?|authorization)"
_LONG_NAME = rf"(?:(?:{_PREFIX})*{_PLAIN}|(?:{_PREFIX})+{_WORD})"
_SECRET_NAME = re.compile(rf"-*(?:{_LONG_NAME}|{_WORD})", re.IGNORECASE)
_VALUE = r"(?!\[redacted\])(?!(?:bearer|basic)\b)([^\s\"',;&}]+)"
_EQUALS = re.compile(rf"(?<![A-Za-z0-9_-])((?:{_LONG_NAME}|{_WORD})=[\"']?){_VALUE}", re.IGNORECASE)
# "key: C major" is prose; "api_key: ..." and "password: ..." are not.
_COLON = re.compile(rf"(?<![A-Za-z0-9_-])({_LONG_NAME}[\"']?\s*:\s*[\"']?){_VALUE}", re.IGNORECASE)
_SHAPES = (
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{12,}"),
    re.compile(r"\bhf_[A-Za-z0-9]{12,}"),
    re.compile(r"\b(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs])[_-][A-Za-z0-9_-]{12,}"),
    re.compile(r"\bAKIA[A-Z0-9]{16}\b"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
)
_SCHEME = re.compile(
    # after "authorization" whatever follows; elsewhere only what is long enough not to be prose ("basic cotton shirt")
    r"(\bauthorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+)(?!\[redacted\])[^\s\"',;]+|(\bbearer\s+)[^\s\"',;]{16,}",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"(?<=://)(?!\[redacted\]@)[^\s/@]+(?=@)")


def redact(text: str, *, known: Iterable[str] = ()) -> str:
    """A text with its secrets masked.

    Args:
        text: anything that will be written or shown.
        known: values to mask wherever they occur; see `known_secrets`.
    """
    for value in sorted(known, key=len, reverse=True):
        text = text.replace(value, MASK)
    text = _USERINFO.sub(MASK, text)
    text = _SCHEME.sub(lambda match: f"{match[1] or match[2]}{MASK}", text)
    text = _EQUALS.sub(rf"\1{MASK}", text)
    text = _COLON.sub(rf"\1{MASK}", text)
    for shape in _SHAPES:
        text = shape.sub(MASK, text)
    return text


def redact_argv(argv: Sequence[str], *, known: Iterable[str] = ()) -> list[str]:
    """A command line with its secrets masked: also the argument after `--api-key`."""
    secrets = tuple(known)
    clean: list[str] = []
    announced = False
    for argument in argv:
        clean.append(MASK if announced and not argument.startswith("-") else redact(argument, known=secrets))
        announced = argument.startswith("-") and announces_secret(argument)
    return clean


def announces_secret(name: str) -> bool:
    """Whether a name says that its value is a secret: "OPENAI_API_KEY", "--token", but not "max_tokens"."""
    return _SECRET_NAME.fullmatch(name) is not None


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the environment variables whose names announce a secret."""
    return tuple(value for name, value in environ.items() if announces_secret(name) and len(value) >= _SHORTEST)
