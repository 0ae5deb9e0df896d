"""Measure Ringmere against a naive gateway on the same machine, in one run (``python -m ops.bench``)."""
