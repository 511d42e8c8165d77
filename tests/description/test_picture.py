"""The picture: well-formed, without markup of users, of every shipped kernel, and who stands where
in it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

import tilepipe as tp
from tests.description.test_describe import meeting
from tests.timeline.kernels import copying
from tilepipe.description.columns import order
from tilepipe.registry.catalog import find
from tools.snapshot.doors import KERNELS

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert('x')</script>&\"'" + " and a long name" * 20


def texts(svg: str) -> list[str]:
    """The texts of a picture, which must be XML."""
    return [x.text or "" for x in ET.fromstring(svg).iter(f"{SVG}text")]


def evil() -> tp.Program:
    """A kernel whose names look like markup."""

    @tp.kernel(grid=1)
    def hostile(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
        ring = tp.ProducerConsumerPipeline.allocate(ctx, 2, name=EVIL)
        tiles = ctx.smem((16, 16), a.dtype, count=2, name=f"tiles{EVIL}")

        @ctx.role(EVIL, warps=1)
        def load() -> None:
            with ring.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(tiles.tile_bytes)
                ctx.tma_load(a, (0, 0), tiles[stage.index()], stage.mbar())

        @ctx.role("store", warps=1)
        def store() -> None:
            with ring.consume() as stage:
                ctx.store(out[0], ctx.load(tiles[stage.index()][0, 0]))

    a = np.ones((16, 16), np.float16)
    return hostile.bind(tp.tensor_map(a, box=(16, 16)), np.zeros(1, np.float16))


class Tags(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)


def test_it_says_what_arrives_and_in_which_lines() -> None:
    found = texts(copying().describe().svg())
    assert {
        "copy",
        "load",
        "store",
        "ring of 1 stage, 512 bytes in tiles",
        "full: 1 arrival + 512 bytes of a",
        "empty: 1 arrival",
        "expects kernels.py:31",
        "waits kernels.py:37",
        "arrives kernels.py:41",
        "shared memory: 528 of 232,448 bytes, 0%",
    } <= set(found)


def test_other_ctas_are_told_of() -> None:
    assert any("in other CTAs of the cluster too" in x for x in texts(meeting().describe().svg()))


@pytest.mark.parametrize("make", ["svg", "html"])
def test_names_of_users_are_no_markup(make: str) -> None:
    made: str = getattr(evil().describe(), make)()
    assert "<script" not in made
    assert "&lt;script&gt;" in made
    if make == "svg":
        assert any("<script>alert" in x for x in texts(made))
    assert "script" not in Tags(made).tags


def test_nothing_is_drawn_outside_the_picture() -> None:
    """Boxes, lines and texts are inside its extents, long names too."""
    for program in (copying(), meeting(), evil()):
        root = ET.fromstring(program.describe().svg())
        wide, high = float(root.attrib["width"]), float(root.attrib["height"])
        for x in root.iter():
            for name, most in (("x", wide), ("y", high), ("x2", wide), ("y2", high)):
                assert 0 <= float(x.get(name, 0)) <= most
            if x.tag == f"{SVG}text" and x.get("text-anchor") == "start":
                assert float(x.attrib["x"]) + len(x.text or "") * 5 <= wide
            if "width" in x.attrib and x is not root:
                assert float(x.attrib["x"]) + float(x.attrib["width"]) <= wide


def test_what_is_handed_on_goes_to_the_right() -> None:
    spec = find("gemm")
    for arch, expected in (
        ("sm90", ["load", "mma"]),
        ("sm100", ["schedule", "load", "mma", "epilogue"]),
    ):
        config, _ = spec.configure({"arch": arch}, None)
        d = spec.make(config, 0).program.describe()
        assert [d.roles[i].name for i in order(d)] == expected


@pytest.mark.slow
@pytest.mark.parametrize("key", KERNELS)
def test_every_shipped_kernel_can_be_shown(key: str) -> None:
    (name, chosen, _), *_ = KERNELS[key]
    spec = find(name)
    config, _ = spec.configure(dict(chosen), None)
    program = spec.make(config, 0).program
    d = program.describe()
    found = texts(d.svg())
    assert {role.name for role in d.roles} <= set(found)
    assert {x.name for x in (*d.rings, *d.lone_barriers)} <= set(found)
    assert "<svg" in program._repr_html_()
    assert d.memory[-1].offset + d.memory[-1].nbytes == d.smem_limit
