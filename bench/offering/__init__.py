"""Cheapest capacity over recorded prices: the sets of offers, the family of settings, and the cost of deciding."""
