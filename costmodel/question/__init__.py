"""What is asked: workload, model, cluster and options, resolved."""
