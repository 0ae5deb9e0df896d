"""The client floor: the other side. Stands on core alone.

``stream.follow`` reads a session and resumes by itself; ``snapshot`` loads and stores its state; ``publish.Publisher``
writes with acknowledgement; ``bus.Bus`` does that too, and runs tasks that can be cancelled.
"""
