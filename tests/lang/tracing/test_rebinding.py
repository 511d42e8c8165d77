"""Python state that a traced loop would carry from one iteration to the next: found wherever it is
kept; and no alarm where nothing is carried.
"""

from __future__ import annotations

import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

ADVICE = ("reassigned in a traced loop", "traced once", "= ctx.var(start)")

CARRIED = {
    "local": (
        "'x'",
        "x = ctx.block_id\nfor i in ctx.range(4):\n    ctx.print('{}', x)\n    x = x + i",
    ),
    "local, augmented": (
        "'x'",
        "x = ctx.block_id\nfor i in ctx.range(4):\n    x += i\nctx.print('{}', x)",
    ),
    "local from a Python number": (
        "'x'",
        "x = 0\nfor i in ctx.range(4):\n    ctx.print('{}', x)\n    x = x + i",
    ),
    "swap": (
        "a",
        (
            "a, b = ctx.block_id, ctx.num_clusters\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', a)\n"
            "    a, b = b, a"
        ),
    ),
    "previous index": (
        "'last'",
        "last = 0\nfor i in ctx.range(4):\n    ctx.print('{}', last)\n    last = i",
    ),
    "counter": ("'n'", "n = 0\nfor i in ctx.range(4):\n    n += 1"),
    "counter read before": (
        "'n'",
        "n = 0\nfor i in ctx.range(4):\n    ctx.print('{}', n)\n    n += 1",
    ),
    "flag": (
        "'first'",
        (
            "first = True\n"
            "for i in ctx.range(4):\n"
            "    if first:\n"
            "        ctx.print('first')\n"
            "    first = False"
        ),
    ),
    "phase": (
        "'phase'",
        "phase = 0\nfor i in ctx.range(4):\n    ctx.print('{}', phase)\n    phase ^= 1",
    ),
    "attribute": (
        "box.x",
        (
            "class Box: pass\n"
            "box = Box()\n"
            "box.x = ctx.block_id\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', box.x)\n"
            "    box.x = box.x + i"
        ),
    ),
    "attribute, counter": (
        "box.n",
        "class Box: n = 0\nbox = Box()\nbox.n = 0\nfor i in ctx.range(4):\n    box.n += 1",
    ),
    "attribute of an attribute": (
        "a.b.x",
        (
            "class A: pass\n"
            "a = A()\n"
            "a.b = A()\n"
            "a.b.x = 0\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', a.b.x)\n"
            "    a.b.x = a.b.x + i"
        ),
    ),
    "list item": (
        "xs[0]",
        (
            "xs = [ctx.block_id]\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', xs[0])\n"
            "    xs[0] = xs[0] + i"
        ),
    ),
    "dict item": (
        "d['k']",
        (
            "d = {'k': ctx.block_id}\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', d['k'])\n"
            "    d['k'] = d['k'] + i"
        ),
    ),
    "item of an item": (
        "d['k'][1]",
        (
            "d = {'k': [0, 1]}\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', d['k'][1])\n"
            "    d['k'][1] = d['k'][1] + i"
        ),
    ),
    "append": ("len(xs)", "xs = []\nfor i in ctx.range(4):\n    xs.append(i)"),
    "pop": ("len(xs)", "xs = [1, 2, 3]\nfor i in ctx.range(4):\n    ctx.print('{}', xs.pop())"),
    "deque": (
        "q",
        (
            "import collections\n"
            "q = collections.deque([0, 1])\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', q[0])\n"
            "    q.rotate()"
        ),
    ),
    "iterator": (
        "it",
        (
            "import itertools\n"
            "it = itertools.count()\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', next(it))"
        ),
    ),
    "set": ("'s'", "s = set()\nfor i in ctx.range(4):\n    s.add(len(s))"),
    "set, popped and filled": (
        "'s'",
        (
            "s = {0}\n"
            "n = ctx.block_id\n"
            "for i in ctx.range(4):\n"
            "    x = s.pop()\n"
            "    ctx.print('{}', n + x)\n"
            "    s.add(x + 1)"
        ),
    ),
    "array": (
        "'a'",
        "import numpy as np\na = np.zeros(3, int)\nfor i in ctx.range(4):\n    a[1] += 1",
    ),
    "array in a list": (
        "xs[0]",
        (
            "import numpy as np\n"
            "xs = [np.zeros(3)]\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', float(xs[0][2]))\n"
            "    xs[0][2] += 1"
        ),
    ),
    "bytearray": ("'b'", "b = bytearray(4)\nfor i in ctx.range(4):\n    b[0] += 1"),
    "array.array": (
        "'b'",
        "import array\nb = array.array('i', [0])\nfor i in ctx.range(4):\n    b[0] += 1",
    ),
    "random numbers": (
        "'r'",
        (
            "import random\n"
            "r = random.Random(0)\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', r.random())"
        ),
    ),
    "random numbers of NumPy": (
        "'r'",
        (
            "import numpy as np\n"
            "r = np.random.default_rng(0)\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', float(r.random()))"
        ),
    ),
    "item far back": ("xs[800]", "xs = [0] * 1000\nfor i in ctx.range(4):\n    xs[800] += 1"),
    "item four deep": (
        "d['a']['b']['c']['d']",
        "d = {'a': {'b': {'c': {'d': 0}}}}\nfor i in ctx.range(4):\n    d['a']['b']['c']['d'] += 1",
    ),
    "class of a module that is named like a library": (
        "c.n",
        (
            "class C: n = 0\n"
            "C.__module__ = 'numpy_helpers'\n"
            "c = C()\n"
            "c.n = 0\n"
            "for i in ctx.range(4):\n"
            "    c.n += 1"
        ),
    ),
    "several names": (
        "'a', 'b' are reassigned in a traced loop",
        "a = b = 0\nfor i in ctx.range(4):\n    a += 1\n    b += 2",
    ),
    "nonlocal": (
        "'x'",
        (
            "x = ctx.block_id\n"
            "def f(i):\n"
            "    nonlocal x\n"
            "    ctx.print('{}', x)\n"
            "    x = x + i\n"
            "for i in ctx.range(4):\n"
            "    f(i)"
        ),
    ),
    "closure, two deep": (
        "n",
        (
            "n = 0\n"
            "def f():\n"
            "    def g():\n"
            "        nonlocal n\n"
            "        n += 1\n"
            "    g()\n"
            "for i in ctx.range(4):\n"
            "    f()"
        ),
    ),
    "closure of a helper that hides it": (
        "n",
        "def make():\n"
        "    n = 0\n"
        "    def f():\n"
        "        nonlocal n\n"
        "        n += 1\n"
        "        return n\n"
        "    return f\n"
        "f = make()\n"
        "for i in ctx.range(4):\n    ctx.print('{}', f())",
    ),
    "bound method": (
        "n",
        "class C:\n"
        "    def __init__(self): self.n = 0\n"
        "    def next(self):\n"
        "        self.n += 1\n"
        "        return self.n\n"
        "c = C()\n"
        "for i in ctx.range(4):\n    ctx.print('{}', c.next())",
    ),
    "bound method alone": (
        "n",
        "class C:\n"
        "    def __init__(self): self.n = 0\n"
        "    def next(self):\n"
        "        self.n += 1\n"
        "        return self.n\n"
        "next_ = C().next\n"
        "for i in ctx.range(4):\n    ctx.print('{}', next_())",
    ),
    "default argument": (
        "f.__defaults__",
        (
            "def f(xs=[]):\n"
            "    xs.append(1)\n"
            "    return len(xs)\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', f())"
        ),
    ),
    "slots": (
        "n",
        (
            "class C:\n"
            "    __slots__ = ('n',)\n"
            "c = C()\n"
            "c.n = 0\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', c.n)\n"
            "    c.n += 1"
        ),
    ),
    "class attribute": (
        "n",
        "class C: n = 0\nfor i in ctx.range(4):\n    ctx.print('{}', C.n)\n    C.n += 1",
    ),
    "loop inside a helper": (
        "'x'",
        (
            "def f(x):\n"
            "    for i in ctx.range(4):\n"
            "        ctx.print('{}', x)\n"
            "        x = x + 1\n"
            "f(ctx.block_id)"
        ),
    ),
    "walrus": (
        "'x'",
        "x = ctx.block_id\nfor i in ctx.range(4):\n    ctx.print('{}', (x := x + i))",
    ),
    "inner loop": (
        "'x'",
        (
            "x = ctx.block_id\n"
            "for i in ctx.range(4):\n"
            "    for j in ctx.range(2):\n"
            "        ctx.print('{}', x)\n"
            "        x = x + j"
        ),
    ),
    "around an inner loop": (
        "'x'",
        (
            "x = ctx.block_id\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', x)\n"
            "    for j in ctx.range(2):\n"
            "        ctx.print('{}', j)\n"
            "    x = x + i"
        ),
    ),
    "under elect": (
        "'x'",
        (
            "x = ctx.block_id\n"
            "for i in ctx.range(4):\n"
            "    with ctx.elect_one():\n"
            "        ctx.print('{}', x)\n"
            "        x = x + i"
        ),
    ),
    "in an unrolled loop": (
        "'x'",
        (
            "x = ctx.block_id\n"
            "for i in ctx.range(4):\n"
            "    for j in range(2):\n"
            "        ctx.print('{}', x)\n"
            "        x = x + j"
        ),
    ),
    "fragment expression": (
        "'x'",
        (
            "f = ctx.accumulator((64, 8))\n"
            "f.fill(0)\n"
            "x = f + 1\n"
            "for i in ctx.range(4):\n"
            "    ctx.print('{}', i)\n"
            "    g = ctx.fragment(x)\n"
            "    x = g + 1"
        ),
    ),
    "tuple": (
        "t",
        "t = (0, 1)\nfor i in ctx.range(4):\n    ctx.print('{}', t[0])\n    t = (t[1], i)",
    ),
    "string": ("'s'", "s = ''\nfor i in ctx.range(4):\n    s += 'x'\n    ctx.print(s)"),
}


@pytest.mark.parametrize("where", CARRIED)
def test_carried_state_is_found(where: str) -> None:
    name, text = CARRIED[where]
    with refused(tp.TraceError, *ADVICE, name, "at <cell "):
        role_from_text(text, warps="warpgroups=1")


def test_carried_state_in_a_global() -> None:
    text = "for i in ctx.range(4):\n    ctx.print('{}', counter)\n    counter = counter + 1"
    with refused(tp.TraceError, *ADVICE, "'counter'"):
        role_from_text(f"global counter\n{text}", counter=0)


@pytest.mark.parametrize("kind", ["nonlocal", "attribute", "list"])
def test_carried_state_around_the_role(kind: str) -> None:
    before = {
        "nonlocal": "n = 0",
        "attribute": "class C: pass\nn = C()\nn.n = 0",
        "list": "n = [0]",
    }[kind]
    change = {"nonlocal": "n += 1", "attribute": "n.n += 1", "list": "n[0] += 1"}[kind]
    scope = "nonlocal n\n" if kind == "nonlocal" else ""
    with refused(tp.TraceError, *ADVICE):
        role_from_text(f"{scope}for i in ctx.range(4):\n    {change}", before=before)


BRANCHES = {
    "local": "x = 0\nwith ctx.when(ctx.block_id == 0):\n    x = 1\nctx.print('{}', x)",
    "counter": "x = 0\nwith ctx.when(ctx.block_id == 0):\n    x += 1",
    "item": "x = [0]\nwith ctx.when(ctx.block_id == 0):\n    x[0] = 1",
    "attribute": "class C: pass\nx = C()\nx.y = 0\nwith ctx.when(ctx.block_id == 0):\n    x.y = 1",
    "append": "x = []\nwith ctx.when(ctx.block_id == 0):\n    x.append(1)",
    "other side": (
        "x = 0\n"
        "with ctx.when(ctx.block_id == 0):\n"
        "    ctx.print('a')\n"
        "with ctx.otherwise():\n"
        "    x = 1"
    ),
    "nonlocal": (
        "x = 0\ndef f():\n    nonlocal x\n    x = 1\nwith ctx.when(ctx.block_id == 0):\n    f()"
    ),
    "walrus": "x = 0\nwith ctx.when(ctx.block_id == 0):\n    ctx.print('{}', (x := 1))",
}


@pytest.mark.parametrize("where", BRANCHES)
def test_state_that_leaves_a_branch_is_found(where: str) -> None:
    with refused(
        tp.TraceError,
        "x",
        "reassigned in a branch",
        "both sides are traced",
        "ctx.select",
        "ctx.var(start)",
    ):
        role_from_text(BRANCHES[where])


def test_a_traced_value_that_leaves_a_branch_is_found_where_it_is_used() -> None:
    with refused(
        tp.TraceError,
        "created inside the branch",
        "which has ended",
        "ctx.var",
        "ctx.print('{}', x)",
    ):
        role_from_text(
            "x = ctx.block_id\nwith ctx.when(ctx.block_id == 0):\n    x = x + 1\nctx.print('{}', x)"
        )


SOUND = {
    "temporary": "for i in ctx.range(4):\n    x = i + 1\n    ctx.print('{}', x)",
    "temporary, rebound in the body": (
        "for i in ctx.range(4):\n    x = i + 1\n    x = x * 2\n    ctx.print('{}', x)"
    ),
    "temporary of an earlier loop": (
        "for i in ctx.range(4):\n"
        "    x = i + 1\n"
        "for i in ctx.range(4):\n"
        "    x = i + 2\n"
        "    ctx.print('{}', x)"
    ),
    "name bound before, rebound before it is read": (
        "x = ctx.block_id\nfor i in ctx.range(4):\n    x = i + 1\n    ctx.print('{}', x)"
    ),
    "the same loop target twice": (
        "for i in ctx.range(4):\n"
        "    ctx.print('{}', i)\n"
        "for i in ctx.range(4):\n"
        "    ctx.print('{}', i)"
    ),
    "nested loops, one target": (
        "for i in ctx.range(4):\n"
        "    for j in ctx.range(4):\n"
        "        ctx.print('{}', i + j)\n"
        "    for j in ctx.range(4):\n"
        "        ctx.print('{}', j)"
    ),
    "the index of an unrolled loop, inside and outside": (
        "for j in range(3):\n"
        "    ctx.print('{}', j)\n"
        "for i in ctx.range(4):\n"
        "    for j in range(2):\n"
        "        ctx.print('{}', i + j)"
    ),
    "the index of an unrolled loop as that of a traced one": (
        "for j in range(3):\n    ctx.print('{}', j)\nfor j in ctx.range(4):\n    ctx.print('{}', j)"
    ),
    "the index of an unrolled loop, in a branch": (
        "for j in range(3):\n"
        "    ctx.print('{}', j)\n"
        "with ctx.when(ctx.block_id == 0):\n"
        "    for j in range(2):\n"
        "        ctx.print('{}', j)"
    ),
    "temporary in both sides of a branch": (
        "with ctx.when(ctx.block_id == 0):\n"
        "    x = 1\n"
        "    ctx.print('{}', x)\n"
        "with ctx.otherwise():\n"
        "    x = 2\n"
        "    ctx.print('{}', x)"
    ),
    "comprehension": (
        "for i in ctx.range(4):\n    xs = [i + j for j in range(3)]\n    ctx.print('{}', xs[2])"
    ),
    "fresh containers": (
        "for i in ctx.range(4):\n"
        "    xs = []\n"
        "    xs.append(i)\n"
        "    d = {'k': i}\n"
        "    d['k'] = xs[0]\n"
        "    ctx.print('{}', d['k'])"
    ),
    "memo of static values": (
        "memo = {}\n"
        "def f(n):\n"
        "    if n not in memo:\n"
        "        memo[n] = n * n\n"
        "    return memo[n]\n"
        "for i in ctx.range(4):\n"
        "    ctx.print('{}', f(3))"
    ),
    "functools.cache": (
        "import functools\n"
        "@functools.cache\n"
        "def f(n):\n"
        "    return n * n\n"
        "for i in ctx.range(4):\n"
        "    ctx.print('{}', f(3))"
    ),
    "a helper defined in the loop": (
        "for i in ctx.range(4):\n    def f(x):\n        return x + i\n    ctx.print('{}', f(1))"
    ),
    "a lambda rebound": (
        "f = lambda x: x\n"
        "for i in ctx.range(4):\n"
        "    f = lambda x: x + 1\n"
        "    ctx.print('{}', f(i))"
    ),
    "variable in place": (
        "v = ctx.var(0)\nfor i in ctx.range(4):\n    v += i\nctx.print('{}', v.get())"
    ),
    "fragment in place": (
        "f = ctx.accumulator((64, 8))\n"
        "f.fill(0)\n"
        "for i in ctx.range(4):\n"
        "    f += 1.0\n"
        "    f *= 2.0"
    ),
    "fragment temporary": (
        "f = ctx.accumulator((64, 8))\n"
        "f.fill(0)\n"
        "for i in ctx.range(4):\n"
        "    g = ctx.fragment(f + 1)\n"
        "    f.set(g)"
    ),
    "a static name set again": (
        "mode = 'a'\nfor i in ctx.range(4):\n    mode = 'b'\n    ctx.print(mode)"
    ),
    "scheduler": (
        "for t in tp.StaticScheduler(ctx, (3, 3)):\n"
        "    for i in ctx.range(2):\n"
        "        ctx.print('{}', t.m + i)"
    ),
    "a cursor made in the body, named as its reads": "last = None\n"
    "st = tp.PipelineState(ctx, 2, name='stage')\n"
    "for k in ctx.range(4):\n    last = st.index()\n    ctx.print('{}', last)\n    st.step()",
    "an array that is only read": (
        "import numpy as np\n"
        "a = np.arange(3)\n"
        "for i in ctx.range(4):\n"
        "    ctx.print('{}', int(a[1]))"
    ),
    "an array set to the same again": (
        "import numpy as np\n"
        "a = np.zeros(3, int)\n"
        "for i in ctx.range(4):\n"
        "    a[1] = 7\n"
        "    ctx.print('{}', i)"
    ),
    "a set that gets what it has": (
        "s = {1}\nfor i in ctx.range(4):\n    s.add(1)\n    ctx.print('{}', i)"
    ),
    "tuple targets": (
        "class It:\n"
        "    pass\n"
        "for i in ctx.range(4):\n"
        "    a, b = i, i + 1\n"
        "    ctx.print('{}', a + b)"
    ),
}


@pytest.mark.parametrize("what", SOUND)
def test_no_false_alarm(what: str) -> None:
    role_from_text(SOUND[what], warps="warpgroups=1").run()


def test_names_of_stages_are_reused() -> None:
    """`stage`, `a_tile` and `b_tile` are bound again in each loop, and in each unrolled part of
    one.
    """
    body = """
    with inputs.producer() as producer:
        for part in range(2):
            for k in ctx.range(3):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(0)
                    a_tile, b_tile = stage.tile()
        for k in ctx.range(3):
            stage = producer.acquire_stage()
            a_tile, b_tile = stage.tile()
            with ctx.elect_one():
                stage.expect_bytes(0)
            stage.release()
            stage = producer.acquire_stage()
            a_tile, b_tile = stage.tile()
            with ctx.elect_one():
                stage.expect_bytes(0)
            stage.release()
    with inputs.consumer() as consumer:
        for part in range(2):
            for k in ctx.range(6):
                with consumer.acquire() as stage:
                    a_tile, b_tile = stage.tile()
    """
    payload = (
        "tp.StandardTilePayload(a_type='bfloat16', b_type='bfloat16', a_shape=(64, 64), "
        "b_shape=(64, 64))"
    )
    before = f"inputs = tp.InputTilePipeline.allocate(ctx, {payload}, num_group_stages=12)"
    program = role_from_text(body, before=before)
    assert program.run().completions["inputs.full"] == [[1] * 12]


def test_the_discarded_second_pass_leaves_no_trace() -> None:
    """A body that is traced twice gives the text of one that is traced once."""
    once = role_from_text(
        "for i in ctx.range(4):\n    x = i + 1\n    ctx.print('{}', ctx.let(x *"
        " 2))\nctx.print('{}', ctx.let(ctx.block_id + 1))"
    )
    twice = role_from_text(
        "x = 0\nfor i in ctx.range(4):\n    x = i + 1\n    ctx.print('{}', ctx.let(x *"
        " 2))\nctx.print('{}', ctx.let(ctx.block_id + 1))"
    )
    strip = [[line.split("#")[0].strip() for line in str(p).splitlines()] for p in (once, twice)]
    assert strip[0] == strip[1]


@pytest.mark.parametrize(
    "text",
    [
        "[ctx.print('{}', i) for i in ctx.range(4)]",
        (
            "xs = [ctx.let(i, 'x') for i in range(3)]\n"
            "[ctx.print('{}', i + xs[0]) for i in ctx.range(4)]"
        ),
        "loop = ctx.range(4)\nfor i in loop:\n    ctx.print('{}', i)",
        "work = tp.StaticScheduler\n{ctx.print('{}', i) for i in ctx.range(2)}",
    ],
)
def test_a_traced_loop_in_a_comprehension_carries_nothing(text: str) -> None:
    assert "for " in str(role_from_text(text))
