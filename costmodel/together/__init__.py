"""Several models on one cluster, each on chips of its own: the question, and what makes an answer invalid."""
