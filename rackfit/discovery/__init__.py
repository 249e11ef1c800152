"""A cluster file made of what operators have: scheduler, driver and fabric listings, one reader per kind of file."""
