"""How routed tokens fall on experts, slots, chips and domains; files of recorded loads."""
