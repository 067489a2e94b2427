"""Breakers, limits and budgets that all workers of a store share: the values of `holdfast.policy`, versioned."""
