"""KV lies where the plan of the search says, within the tier's room and bandwidth."""

OF = "replica"
HOLDS = "bounds count the room of a tier; a realised batch is checked by the judge's own rule"
