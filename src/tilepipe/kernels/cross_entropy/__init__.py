"""The cross entropy of rows of logits: `sm90`."""
