"""The simulated GPU: agents, memories, barriers, asynchronous units and the order of accesses."""
