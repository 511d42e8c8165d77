"""The gradients of attention: `sm90`."""
