"""Stored results on paper: tables, comparisons, LaTeX. Reads rows and published numbers; runs nothing."""
