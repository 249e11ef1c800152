"""What one replica does: stages, memory, serving; and all replicas together."""
