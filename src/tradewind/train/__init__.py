"""Training: fit(pack) for networks, plain functions and commands."""
