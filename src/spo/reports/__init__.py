"""Reads stored runs, compares them and writes tables, figures and HTML. Imports no JAX."""
