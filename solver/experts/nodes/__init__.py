"""Experts over nodes: fewer copies of tokens on the network."""
