"""Reports: draw what analysis returns."""
