"""Which accesses happen before which: what each agent, barrier and unit knows."""
