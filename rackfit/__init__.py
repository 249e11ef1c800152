"""What people use: the public API, the command line, reports and exporters."""
