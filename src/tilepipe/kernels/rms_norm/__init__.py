"""The root mean square norm of rows: `sm90`."""
