"""Shell scripts that start servers, read without running them."""
