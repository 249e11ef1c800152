"""``rackfit serve``: the questions of the command line over HTTP, each answered in a process of its own."""
