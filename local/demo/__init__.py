"""The demo: real orders with every kind of duplicate, and an account of what became of them."""
