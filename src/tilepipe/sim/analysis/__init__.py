"""What the IR and the generated code say of a kernel before it runs: data flow, liveness."""
