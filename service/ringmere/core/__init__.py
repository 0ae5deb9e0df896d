"""The rules of the product as pure functions and tables.

Two rules hold for every module of this floor: it does no I/O, and it knows no clock. Whatever time or
stored state a rule needs is passed in as a value, so each rule can be checked by reading or by a test
that needs nothing but Python.
"""
