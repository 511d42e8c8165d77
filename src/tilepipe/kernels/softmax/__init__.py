"""The softmax of rows: `sm90`."""
