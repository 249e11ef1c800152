"""From a running layout to another: which replicas stay, on which chips new ones start, and in what order."""
