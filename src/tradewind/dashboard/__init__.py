"""The live page over run folders: `tradewind serve`."""
