"""`python -m tradewind` is `tradewind`."""

from tradewind.cli import program

program()
