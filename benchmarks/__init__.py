"""What this costs, measured; never part of the tests. `make bench` runs all of it."""
