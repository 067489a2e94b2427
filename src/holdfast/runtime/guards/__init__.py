"""Policies around plain calls: the values of `holdfast.policy` behind a lock and a sleep."""
