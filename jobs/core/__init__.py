"""What the jobs do: one package for each job, and one for each program on nodes."""
