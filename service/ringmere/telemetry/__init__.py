"""The telemetry floor: metrics and logs hang on the hub through its observer."""
