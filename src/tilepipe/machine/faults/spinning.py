"""Deadlocks of loops that look at memory, or at nothing, and never find what they wait for."""

from __future__ import annotations

from tilepipe.machine.agents import Spin
from tilepipe.machine.faults import view
from tilepipe.machine.faults.view import Wait
from tilepipe.machine.machine import Machine


def advice(m: Machine, wait: Wait) -> str:
    """Why a loop that looks at an element of a tensor, or at nothing, does not end."""
    agent, spin, where = wait.agent, wait.on, wait.site.loc.short
    assert isinstance(spin, Spin)
    if not spin.name:
        return (
            f"{agent} goes round the loop at {where} and nothing changes from one round to the"
            f" next: no other {agent.cta.words['warp']} may write what it reads there (that"
            " would be a race). Wait on a barrier for whoever is to end the loop, or poll with"
            f" {agent.cta.words['an atom.add of 0']}."
        )
    clusters, size = m.world.clusters, len(m.ctas)
    if clusters is not None and clusters.waiting:
        left, total = len(clusters.waiting), m.num_clusters
        return (
            f"{agent} waits at {where} until others change {spin.name}, and {left * size} of"
            f" the {total * size} CTAs of the grid have not started: only"
            f" {clusters.resident * size} of {total * size} CTAs can be resident, and each of"
            " these waits. CTAs that wait for each other must all be resident: launch at most"
            f" {clusters.resident * size}, or let each do the work of several."
            f"{agent.cta.words.get('a cooperative launch', '')}"
        )
    if m.world.program.addressed:
        polls = f"{agent} polls {spin.name} at {where}, which holds {spin.value} and which"
        if spin.writers is not None and not view.sources(m, spin):
            return (
                f"{polls} no other instruction has written. Check that the store which is to"
                " end the loop is executed, and that it and the loop use one address."
            )
        return (
            f"{polls} no running agent can change. Check that it is written often enough and"
            " at the right address, and that it is reset before each launch."
        )
    return (
        f"{agent} tests {spin.name} at {where} until it holds something else than {spin.value},"
        " and no remaining agent changes it: too few add to it, or it starts at another value"
        " than the loop takes for granted (is it set back to 0 before each launch?)."
    )
