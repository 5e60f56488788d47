"""StraTA, strategic trajectory abstraction: arXiv 2605.06642."""
