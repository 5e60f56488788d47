"""abstraction-bench: a harness and reproduction suite for abstraction in LLM agents. Start with `harness.types`."""

__version__ = "0.1.0"
