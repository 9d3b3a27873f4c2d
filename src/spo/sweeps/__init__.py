"""Sweeps: many runs of `spo train` that differ in a few settings, in one folder.

space     values of the settings, and the points that a sweep tries
folder    the files of a sweep: its settings, its trials and their results
workers   trials as child processes, and early stops
results   table and figure of a sweep
"""
