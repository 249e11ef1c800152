"""What a layout is: replicas, stages, experts on slots."""
