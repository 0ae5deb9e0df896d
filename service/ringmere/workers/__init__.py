"""Several instances on one address: worker processes, and the parent that keeps them.

Each worker is a whole gateway (:func:`ringmere.serve.run_instance`) with a connection to NATS of its own. The
parent owns the address, the embedded NATS server if there is one, and the numbers of workers that have ended.
"""
