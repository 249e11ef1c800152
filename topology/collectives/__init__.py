"""Collectives: traffic per chip and domain, composed from scale-up legs and scale-out loads."""
