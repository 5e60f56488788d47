"""What is told of the rows that training diverged on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.experience import Row
from harness.model import TrainingRow


def told_rows(
    rows: Sequence[Row | TrainingRow], columns: Mapping[str, Sequence[Any] | NDArray[Any]]
) -> list[dict[str, Any]]:
    """Rows and what belongs to them as plain JSON values, a mapping for each row.

    Args:
        rows: N rows.
        columns: per name N numbers, or N arrays with a number for each token.
    """
    return [
        asdict(row) | {name: np.asarray(values[k]).tolist() for name, values in columns.items()}
        for k, row in enumerate(rows)
    ]
