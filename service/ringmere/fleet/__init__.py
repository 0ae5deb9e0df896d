"""A whole installation as child processes: NATS (one server or three) and gateways, to be broken on purpose.

``ringmere verify`` starts one when it is not pointed at gateways that exist.
"""
