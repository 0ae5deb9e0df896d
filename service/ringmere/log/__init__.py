"""The log floor: sessions as subjects of JetStream streams. The only floor that knows NATS."""
