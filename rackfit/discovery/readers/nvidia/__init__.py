"""What NVIDIA's driver tells of a host's GPUs and links."""
