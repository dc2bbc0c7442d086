"""Kernels of our own for narrow convolutions, of which many networks have a few each."""
