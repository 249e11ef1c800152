"""What serving costs by the day: machines that are owned or rented, or an API at its list price."""
