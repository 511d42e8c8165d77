"""Debug builds: waits with a bound, and the message of a launch that hangs."""
