"""How many replicas of which shape stand where (CP-SAT)."""
