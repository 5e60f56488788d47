"""The words around a table: a caption that says what the numbers are, notes that say where they are weak."""

from __future__ import annotations

from collections import defaultdict

from reports.notes import designs, excluded_note, footnotes
from reports.tables import LEVEL, Table
from results.papers import Cell, about


def caption(table: Table) -> str:
    """What was measured and published, by which design the marks were set, and over which family."""
    return " ".join([_measured(table), *_published(table), *_marks(table), *_starting_policies(table)])


def notes(table: Table) -> list[str]:
    """Weaknesses and provenance, each a sentence."""
    found = []
    if table.excluded:
        found.append(excluded_note(table.excluded))
    if table.runs and table.reference.run is None:
        found.append(f"No run of the reference {table.reference.spec.label}: nothing is compared.")
    if missing := [row.spec.label for row in table.rows if row.run is None]:
        found.append(f"Not run: {', '.join(missing)}.")
    found += [f"Not comparable: {reason} ({', '.join(who)})." for reason, who in _reasons(table).items()]
    if any(cell.certainty == "uncertain" for cell in printed(table)):
        found.append("?: read from the paper with less certainty; results/papers says why.")
    found += footnotes(table.family)
    if table.runs:
        found.append(f"Runs: {', '.join(run.label for run in table.runs)}.")
    return found


def printed(table: Table) -> list[Cell]:
    """Every published cell that the table shows."""
    return [value for row in table.rows for cell in row.cells for value in cell.published.values() if value]


def _measured(table: Table) -> str:
    columns = " and ".join(column.label for column in table.spec.columns)
    sizes = [cell.measured for row in table.rows for cell in row.cells if cell.measured]
    if not sizes:
        return f"{table.spec.title}: {columns} in percent; nothing was run."
    tasks, seeds = max(size.n_tasks for size in sizes), sizes[0].n_seeds
    spread = f"mean ± sd over {seeds} seeds (sd with ddof 1)" if seeds > 1 else "mean of 1 seed"
    return f"{table.spec.title}: {columns} in percent, {spread} on {tasks} tasks."


def _published(table: Table) -> list[str]:
    if table.spec.paper is None:
        return []
    paper = about(table.spec.paper)
    models = ", ".join(f"{heading} = {model}" for model, heading in table.spec.backbones.items())
    text = f"Published: {paper.paper} (arXiv {paper.arxiv}), {table.spec.table}, {models}; mean ± sd as printed"
    if any(cell.quoted for cell in printed(table)):
        text += "; † quoted there from another paper"
    return [text + "."]


def _marks(table: Table) -> list[str]:
    if not table.family:
        return []
    used = designs(found.comparison for found in table.family)
    return [
        f"* Holm p < {LEVEL:g} against {table.reference.spec.label}: {used};"
        f" Holm's family: the {len(table.family)} comparisons of this table."
    ]


def _starting_policies(table: Table) -> list[str]:
    started: dict[str, list[str]] = defaultdict(list)
    for row in table.rows:
        if row.run and row.run.starting_policy:
            started[row.run.starting_policy].append(row.spec.label)
    return [
        f"{', '.join(who)}: all seeds start from one shipped policy ({policy}), so the spread over seeds does not hold "
        "that of the starting policy."
        for policy, who in started.items()
    ]


def _reasons(table: Table) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in table.rows:
        if table.spec.backbones and row.run and not row.run.comparable:
            reasons[row.run.reason].append(row.spec.label)
    return reasons
