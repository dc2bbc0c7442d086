"""`python -m tradewind` is `tradewind`."""

from tradewind.cli import main

main()
