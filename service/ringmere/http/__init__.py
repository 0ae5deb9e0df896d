"""The HTTP floor: the doors. Routes, SSE, problems, the page."""
