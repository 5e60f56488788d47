"""Back ends of the model contract, one module each; import the module you need, none is loaded here."""
