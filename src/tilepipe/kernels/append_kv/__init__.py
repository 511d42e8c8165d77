"""New keys and values that go into a cache in GPU memory."""
