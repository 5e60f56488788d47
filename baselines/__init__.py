"""Baselines of both papers, one file a method."""
