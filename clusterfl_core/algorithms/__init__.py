"""One algorithm a file, top to bottom as in its paper: settings, state, client, server."""
