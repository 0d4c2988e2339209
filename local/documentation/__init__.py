"""Documents that are made from the code: ``python -m local.documentation``."""
