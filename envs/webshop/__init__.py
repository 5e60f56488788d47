"""WebShop: search, choose, buy. `env.WebShop` is the environment; README.md tells what lies where."""
