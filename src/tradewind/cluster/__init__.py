"""Slurm: batch scripts, their submission, the queue, and a site's defaults."""
