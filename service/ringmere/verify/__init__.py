"""The honest soak: publishers that count, readers that drop and resume, and a judge who compares the two.

``ledger`` is what publishers know, ``witness`` what a reader has seen, ``judge`` compares them, ``report`` is
what people and programs get; these four do no I/O. ``writer`` and ``reader`` talk to gateways, ``trial`` runs
one round. It stands on the client and core, so it sees a gateway as any client does.
"""
