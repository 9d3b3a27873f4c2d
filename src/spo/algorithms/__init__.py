"""The algorithms: each one a story told in the order in which its data flows."""
