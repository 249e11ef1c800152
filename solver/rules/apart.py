"""Attention and experts apart: shapes of two groups are made as the judge prices them, where they are asked for."""

OF = "replica"
HOLDS = "shapes of two groups are listed for what the judge prices; a search that would need another is refused"
