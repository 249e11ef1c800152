"""What launch files need: hosts, ranks, options of engines, routers, and what engines cannot run."""
