"""The engine of the checker: executions of a launch in a chosen order, and the search over them.

- The program: `front_end` says what the engine asks of it; `traced_front_end` and `ptx_front_end`
  answer.
- One execution: `execution`, `nonblocking_tests`; its steps, recorded for a counterexample:
  `recording`.
- Whether two of its steps could be the other way round: `causal_order`, `steps`.
- The search: over executions (`race_reversal`), over states (`state_search`; their keys:
  `state_key`, `keys_of_knowledge`, `keys_of_units`, `future_races`), and, if
  clusters draw from one counter, over one cluster at a time (`tickets`; docs/decisions, 12).
"""
