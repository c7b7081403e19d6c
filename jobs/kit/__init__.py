"""The code that all jobs share. It imports no job."""
