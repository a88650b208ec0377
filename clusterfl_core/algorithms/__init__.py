"""One algorithm a file, top to bottom as in its paper: settings, state, client, server."""

__all__ = []  # each algorithm is a module of its own
