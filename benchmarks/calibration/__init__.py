"""What a few runs of one's own are worth."""
