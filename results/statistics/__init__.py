"""Paired comparison of two methods on the same tasks and seeds; see `compare`."""

from results.statistics.align import Aligned, AlignmentError, align
from results.statistics.comparison import Comparison, compare
from results.statistics.differences import cluster_se
from results.statistics.multiplicity import holm, with_holm

__all__ = ["Aligned", "AlignmentError", "Comparison", "align", "cluster_se", "compare", "holm", "with_holm"]
