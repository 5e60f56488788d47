"""The worlds that agents act in: one package an environment, each the contract of `harness.env` and nothing else."""
