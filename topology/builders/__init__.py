"""One scale-up topology per file; ``base.register`` makes it known to cluster files by its kind."""
