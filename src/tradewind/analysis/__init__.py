"""Analysis: results in, plain values out."""
