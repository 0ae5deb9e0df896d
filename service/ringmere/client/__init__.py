"""The client floor: the other side. Stands on core alone."""
