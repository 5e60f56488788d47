"""The methods of the papers: `strata` (arXiv 2605.06642); `scaffold` (arXiv 2609.05511) comes next."""
