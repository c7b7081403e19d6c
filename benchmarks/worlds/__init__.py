"""Clusters in which jobs are measured, one module for each job."""
