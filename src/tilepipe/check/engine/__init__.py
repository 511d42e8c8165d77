"""The engine of the checker: executions of a launch in a chosen order, and the search over them.

- One execution: `launch_state` (its start), `execution`, `polling_agents`, `waiting_tests`,
  `limits`; its steps, recorded for a counterexample: `recording`.
- Whether two of its steps could be the other way round: `causal_order`, `steps`, `warp_races`.
- The search: over executions (`race_reversal`, `trace_signature`) and over states (`state_search`,
  `state_key`, `race_state`, `key_encoding`).
"""
