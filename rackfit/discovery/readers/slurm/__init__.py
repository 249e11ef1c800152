"""What Slurm tells of nodes and switches."""
