"""Transforms of scalar and vector fields, the same for a sample wherever it is drawn."""
