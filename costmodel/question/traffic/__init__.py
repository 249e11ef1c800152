"""Who comes when, with how many tokens: traces as files, and descriptions that are drawn from a seed."""
