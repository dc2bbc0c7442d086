"""Tradewind in scikit-learn's manner: a search over any estimator, and any network as an estimator."""
