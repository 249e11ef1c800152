"""What AMD's tools tell of a host's GPUs."""
