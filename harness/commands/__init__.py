"""The verbs of the command line, one file each. At module top they import nothing but typer: `--help` stays fast."""
