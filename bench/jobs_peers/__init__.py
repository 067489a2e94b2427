"""The peers, a module each, as their users would write it: where the store is comes from the environment."""
