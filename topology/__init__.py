"""What hardware there is: chips, domains, scale-out graphs, routing, link loads."""
