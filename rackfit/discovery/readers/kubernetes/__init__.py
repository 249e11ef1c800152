"""What Kubernetes and clouds that run it tell of nodes."""
