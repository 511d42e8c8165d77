"""The page: its data, its independence of a network, and names that look like markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from tests.timeline.browser import Elements, dom, needs_chromium
from tests.timeline.kernels import copying, recorded
from tilepipe.errors import BindError
from tilepipe.timeline import Event, Measured, Release, Stopped, Timeline, Wait

EVIL = "</script><img src=x onerror=document.title='run'><!--<b>&amp;\u2028"


def embedded(page: str) -> Any:
    """The data in a page."""
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    return json.loads(text[1])


def evil() -> Timeline:
    """A timeline all of whose names look like markup."""
    by = Release(0, EVIL, EVIL, EVIL, EVIL, EVIL, 1.0)
    events = (
        Event(0, EVIL, EVIL, "copy", EVIL, EVIL, EVIL, 0.0, 1.0, EVIL),
        Event(0, EVIL, EVIL, "wait", EVIL, EVIL, EVIL, 0.0, 1.0, EVIL, wait=Wait(EVIL, 0, by)),
    )
    return Timeline(EVIL, 1, 1, events, (), 3.0, fault=Stopped(EVIL, ((EVIL, EVIL, EVIL, EVIL),)))


def test_the_data_are_those_of_the_timeline() -> None:
    found = recorded(copying())
    data = embedded(found.html())
    (run,), texts = data["runs"], data["texts"]
    columns = run["events"]
    assert {len(column) for column in columns.values()} == {len(found.events)}
    for i, e in enumerate(found.events):
        lane = run["lanes"][columns["lane"][i]]
        assert (lane[0], texts[lane[1]], texts[lane[2]]) == (e.cta, e.role, e.part)
        assert [texts[columns[x][i]] for x in ("op", "what", "at", "about")] == [
            e.op, e.what, e.at, e.about,
        ]  # fmt: skip
        assert columns["begin"][i] == pytest.approx(e.begin_us, abs=1e-5)
        assert columns["end"][i] == pytest.approx(e.end_us, abs=1e-5)
        assert ["copy", "mma", "wait"][columns["kind"][i]] == e.kind
        if e.wait is not None and e.wait.released_by is not None:
            assert texts[columns["byWhat"][i]] == e.wait.released_by.what
            assert run["lanes"][columns["by"][i]][0] == e.wait.released_by.cta
    assert [texts[ring["ring"]] for ring in run["rings"]] == ["ring", "ring"]


def test_it_needs_no_network() -> None:
    page = recorded(copying()).html()
    elements = Elements(page)
    assert "link" not in elements.tags
    assert "src" not in elements.attributes["script"]
    assert not re.search(r"https?://|//cdn|@import|url\(|fetch\(|XMLHttp", page)


def test_names_cannot_become_markup() -> None:
    page = evil().html()
    assert "<img" not in page
    assert "</script><" not in page.replace("</script>\n", "")
    assert embedded(page)["texts"].count(EVIL) == 1
    safe = Elements(replace(evil(), name="x", events=(), fault=None).html()).tags
    assert Elements(page).tags == safe


def test_marks_of_the_page_in_names_stay_names() -> None:
    name = "@DATA@ @SCRIPT@ @CSS@ @TITLE@"
    page = replace(evil(), name=name).html()
    assert name in embedded(page)["texts"]
    assert Elements(page).tags == Elements(evil().html()).tags


def test_two_runs_on_one_page() -> None:
    one, two = recorded(copying(), 1), recorded(copying(columns=3), 1)
    runs = embedded(one.html(two))["runs"]
    assert [len(run["events"]["lane"]) for run in runs] == [len(one.events), len(two.events)]


def test_the_title_says_which_kernel_where_and_in_which_fault_it_ended() -> None:
    of = replace(evil(), name="gemm", fault=None)
    on = Measured("NVIDIA H200", 1.7, 9.0, 0)
    ended = Stopped("deadlock: 1 of 2 agents of CTA 0 wait\n\n  agent")

    def title(first: Timeline, second: Timeline | None = None) -> str:
        found = re.search("<title>(.*?)</title>", first.html(second))
        assert found is not None
        return unescape(found[1])

    assert title(of) == "gemm"
    assert title(replace(of, measured=on), of) == "gemm on NVIDIA H200 beside gemm"
    assert title(replace(of, fault=ended)) == "gemm: deadlock: 1 of 2 agents of CTA 0 wait"
    long = title(replace(of, fault=Stopped("x" * 1000)))
    assert (len(long), long[-1]) == (len("gemm: ") + 100, "…")


def test_saving(tmp_path: Path) -> None:
    found = recorded(copying())
    found.save(tmp_path / "t.html")
    assert (tmp_path / "t.html").read_text(encoding="utf-8") == found.html()
    found.save(str(tmp_path / "t.json"))
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8")) == found.trace()
    with pytest.raises(BindError, match=r"ends in \.html, a page, or in \.json.*got t\.txt"):
        found.save(tmp_path / "t.txt")
    with pytest.raises(BindError, match=r"two timelines are written as \.html, not as t\.json"):
        found.save(tmp_path / "t.json", beside=found)
    with pytest.raises(BindError, match=r"cannot write .*: No such file or directory"):
        found.save(tmp_path / "no" / "t.html")
    with pytest.raises(BindError, match="written to a file, by its name; got None"):
        found.save(None)  # type: ignore[arg-type]
    with pytest.raises(BindError, match=r"beside is another timeline, .*or None; got 3"):
        found.html(beside=3)  # type: ignore[arg-type]
    with pytest.raises(BindError, match=r"which program\.run\(timeline=True\)\.timeline is"):
        found.save(tmp_path / "t.html", beside=copying())  # type: ignore[arg-type]
    found.save(tmp_path / "t.HTML")
    assert (tmp_path / "t.HTML").read_text(encoding="utf-8") == found.html()


@needs_chromium
@pytest.mark.slow
def test_a_browser_draws_it_and_says_who_released_a_wait(tmp_path: Path) -> None:
    found = recorded(copying())
    wait = next(
        i for i, e in enumerate(found.events) if e.wait is not None and e.wait.on == "ring.empty"
    )
    page = tmp_path / "t.html"
    found.save(page)
    elements = Elements(dom(page, tmp_path / "profile", f"#search=ring.empty&event={wait}"))
    assert elements.attributes["html"]["data-events"] == str(len(found.events))
    assert "data-ready" in elements.attributes["html"]
    by = found.events[wait].wait
    assert by is not None
    assert by.released_by is not None
    assert "waits for ring.empty, phase 0" in elements.texts
    assert f"released by {by.released_by.what}, {by.released_by.at}" in elements.texts
    assert any(re.match(r"\d+ found", text) for text in elements.texts)


@needs_chromium
@pytest.mark.slow
def test_a_notebook_shows_the_page_in_a_frame(tmp_path: Path) -> None:
    found = recorded(copying())
    notebook = tmp_path / "notebook.html"
    # a script in the frame tells the page around it what it shows
    told = escape("<script>parent.document.title = document.body.innerText</script></body>")
    marked = found._repr_html_().replace(escape("</body>"), told)
    notebook.write_text(f"<!DOCTYPE html><title>x</title>{marked}", encoding="utf-8")
    shown = re.search(r"<title>(.*?)</title>", dom(notebook, tmp_path / "profile"), re.DOTALL)
    assert shown is not None
    assert found.name in shown[1]
    assert "2 CTAs" in shown[1]
    assert "ring.empty" in shown[1]
    assert Elements(found._repr_html_()).tags == ["iframe"]


@needs_chromium
@pytest.mark.slow
def test_a_browser_makes_no_element_of_a_name(tmp_path: Path) -> None:
    page = tmp_path / "t.html"
    evil().save(page)
    elements = Elements(dom(page, tmp_path / "profile", "#event=1"))
    assert "img" not in elements.tags
    assert "data-ready" in elements.attributes["html"]
    assert any(text.startswith("released by </script><img") for text in elements.texts)
    assert elements.tags.count("pre") == 1  # the fault
    assert elements.texts.count(EVIL.replace("&amp;", "&amp;")) >= 5  # it, and the cells of a step


# Zooms in, drags the page to the left, then points at one place after another in a lane.
_HANDS = """
<script>
const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
const range = () => document.getElementById("range").textContent;
const send = (type, x, y, more) => canvas.dispatchEvent(
  new (type === "wheel" ? WheelEvent : PointerEvent)(
    type, { clientX: box.left + x, clientY: box.top + y, cancelable: true, ...more }));
canvas.setPointerCapture = () => {};
const seen = [range()];
send("wheel", 700, 100, { deltaY: -600 });
setTimeout(() => {
  seen.push(range());
  send("pointerdown", 600, 100);
  send("pointermove", 400, 100);
  send("pointerup", 400, 100);
  setTimeout(() => {
    seen.push(range());
    const tip = document.getElementById("tip");
    for (let y = 60; y < 200 && tip.hidden; y += 5) send("pointermove", 700, y);
    seen.push(tip.textContent);
    document.title = JSON.stringify(seen);
  }, 100);
}, 100);
</script>
"""


@needs_chromium
@pytest.mark.slow
def test_wheel_drag_and_pointer(tmp_path: Path) -> None:
    page = tmp_path / "t.html"
    # without a window there are no frames to wait for
    frames = "<script>window.requestAnimationFrame = (f) => setTimeout(f, 16);</script>"
    text = recorded(copying(columns=8), 1).html()
    text = text.replace('<script id="data"', f'{frames}<script id="data"')
    page.write_text(text.replace("</body>", f"{_HANDS}</body>"), encoding="utf-8")
    title = re.search(r"<title>(.*?)</title>", dom(page, tmp_path / "profile"))
    assert title is not None
    first, zoomed, dragged, tip = json.loads(unescape(title[1]))
    spans = [[float(x) for x in re.findall(r"[\d.]+", text)] for text in (first, zoomed, dragged)]
    (a, b), (c, d), (e, f) = spans
    assert a < c < d < b
    assert c < e
    assert f - e == pytest.approx(d - c, abs=0.02)
    assert "µs, " in tip
