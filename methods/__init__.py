"""The methods of the two papers: `strata` (arXiv 2605.06642) and `scaffold` (arXiv 2609.05511)."""
