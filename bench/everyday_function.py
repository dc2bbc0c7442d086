"""The trivial function of bench/everyday.py."""


def score(config):
    return -((config["a"] - 0.3) ** 2) - (config["b"] - 0.7) ** 2 - (config["c"] - 20) ** 2 / 1000
