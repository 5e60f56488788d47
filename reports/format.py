"""Numbers as they are printed, the same in every format."""

from __future__ import annotations

PERCENT_METRICS = ("success", "score")
"""Metrics from 0 to 1 that are printed in percent, as the papers print them."""


def factor(metric: str) -> float:
    """What a metric is multiplied by before it is printed."""
    return 100.0 if metric in PERCENT_METRICS else 1.0


def number(value: float) -> str:
    """One decimal, as the papers print; no negative zero."""
    return f"{value + 0.0:.1f}".replace("-0.0", "0.0")


def signed(value: float) -> str:
    """One decimal with its sign."""
    text = number(value)
    return text if text.startswith("-") or text == "0.0" else f"+{text}"


def mean_sd(mean: float, sd: float | None) -> str:
    """Mean and standard deviation; the mean alone where there is no deviation."""
    return number(mean) if sd is None else f"{number(mean)} ± {number(sd)}"


def interval(bounds: tuple[float, float]) -> str:
    """Both bounds with their signs."""
    return f"[{signed(bounds[0])}, {signed(bounds[1])}]"


def p_value(p: float | None) -> str:
    """Three decimals; small ones with one digit; "<1e-4" below what 10,000 resamples can tell; "-" for none."""
    if p is None:
        return "-"
    if p < 1e-4:
        return "<1e-4"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}".replace("e-0", "e-")
