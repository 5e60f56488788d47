"""A table for a paper: booktabs, made by a template, everything escaped."""

from __future__ import annotations

import re

from reports.caption import caption, notes
from reports.layout import comparisons_grid, values_grids
from reports.tables import Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "*": r"$^{*}$",
    "±": r"$\pm$",
    "†": r"$^{\dagger}$",
    "−": "$-$",
    "×": r"$\times$",
    "→": r"$\to$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "Δ": r"$\Delta$",
    "δ": r"$\delta$",
    "κ": r"$\kappa$",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
}
"""Letters and signs that pdfLaTeX does not take as they are, or reads as commands."""

_NEGATIVE = re.compile(r"(?<![\w.])-(?=\d)")
"""A minus in front of a number, not a hyphen inside a word or an exponent."""


def escape(text: str) -> str:
    """Plain text as LaTeX text: special characters mean themselves, minus signs and marks are set as mathematics."""
    return _NEGATIVE.sub("$-$", "".join(_SPECIAL.get(character, character) for character in text))


def render_latex(table: Table) -> str:
    r"""A `table*` environment with the values, the comparisons and the notes; needs \usepackage{booktabs}."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("reports"),
        undefined=StrictUndefined,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # HTML's rules are not LaTeX's: the template passes every text through `tex`
    )
    environment.filters["tex"] = escape
    compared = comparisons_grid(table)
    grids = [*values_grids(table), *([compared] if compared else [])]
    template = environment.get_template("table.tex.j2")
    return template.render(name=table.spec.name, caption=caption(table), grids=grids, notes=notes(table))
