"""The hub floor: who is listening, how fast, until when. Knows neither NATS nor HTTP."""
