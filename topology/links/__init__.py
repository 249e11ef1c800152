"""What collectives were measured to reach on the links: fits by chip, and how they are found."""
