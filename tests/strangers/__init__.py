"""Algorithms that the library does not know, written with its public names only."""
