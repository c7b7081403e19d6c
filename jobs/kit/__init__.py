"""What the jobs share; nothing in here knows a job."""
