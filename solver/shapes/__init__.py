"""Every shape a replica may have, and the chips it may have it on."""
