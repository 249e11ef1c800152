"""Several models on one cluster: which chips each gets, by one fleet model over all of them."""
