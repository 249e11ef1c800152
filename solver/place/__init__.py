"""From a shape to a replica on named chips: experts, stages, KV, batch."""
