"""The version, for the package and its records; pyproject.toml names the same."""

VERSION = "0.1.0"
