"""Search: which trial next."""
