"""Networks between domains, one kind per file; ``base.network_kind`` makes a kind known."""
