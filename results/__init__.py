"""Stored results: rows, their statistics, and the numbers that papers print. Knows only `harness.types`."""
