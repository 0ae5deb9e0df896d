"""Ringmere: durable, resumable event streams for browsers and SDKs on NATS JetStream."""

__version__ = "0.1.0"
