"""What no layout can beat: admissible prices of shapes and fleets."""
