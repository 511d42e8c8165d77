"""Checking instances on a Dask cluster: `check.parallel.check_all(..., client=...)`. Needs the
extra 'dask'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilepipe.check.parallel.recipes import (
    CheckResult,
    Failure,
    Instance,
    Options,
    Postponed,
    check_instance,
)
from tilepipe.errors import BindError, UnavailableError


def run_on_cluster(
    instances: Sequence[Instance],
    options: Sequence[Options],
    client: Any,
    record: Callable[[int, CheckResult | Postponed], None],
) -> None:
    """Checks all instances on the cluster of `client`, and calls `record(number, result)` in this
    thread as each is done.

    When a worker dies, Dask moves its instances to another worker. It gives up instances that were
    on several workers that died (`distributed.scheduler.allowed-failures`), and cannot tell which
    of them was the cause: those are checked again one at a time, and the one whose worker dies then
    is a failure. If this function raises, checks that have not begun are cancelled.

    Raises:
        UnavailableError: `distributed` is not installed.
        BindError: `client` is no Dask client, or an asynchronous one.
    """
    try:
        from distributed import Client, KilledWorker, as_completed
    except ImportError as error:
        raise UnavailableError(
            f"client= takes a Dask client, and Dask is not installed ({error}): pip install"
            " 'tilepipe[dask]'"
        ) from None
    if not isinstance(client, Client) or client.asynchronous:
        raise BindError(f"client= is a distributed.Client that is not asynchronous; got {client!r}")
    completed: Any = as_completed
    futures: dict[Any, int] = {}
    suspects: list[int] = []
    try:
        for number, (name, recipe) in enumerate(instances):
            futures[_submitted(client, name, recipe, options[number])] = number
        for future in completed(list(futures)):
            number, raised = futures[future], future.exception()
            if isinstance(raised, KilledWorker):
                suspects.append(number)
            else:
                record(number, future.result() if raised is None else Failure.of(raised))
        for number in sorted(suspects):
            future = _submitted(client, *instances[number], options[number])
            futures[future] = number
            raised = future.exception()
            if isinstance(raised, KilledWorker):
                record(
                    number,
                    Failure(
                        f"its worker died, alone with it and more than once ({raised}). The others"
                        " are not affected"
                    ),
                )
            else:
                record(number, future.result() if raised is None else Failure.of(raised))
    finally:
        cancel: Any = client.cancel
        cancel([future for future in futures if not future.done()])


def _submitted(client: Any, name: str, recipe: Any, options: Options) -> Any:
    try:
        return client.submit(check_instance, name, recipe, options, pure=False)
    except TypeError as error:
        raise BindError(
            f"the recipe of instance '{name}' cannot go to a worker ({error}). Give a function that"
            " binds the kernel there."
        ) from error
