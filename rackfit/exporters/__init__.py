"""One export target per file."""
