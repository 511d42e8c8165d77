"""Writing SVG: elements, texts of which nothing is markup, colours for light and for dark."""

from __future__ import annotations

from html import escape

# class -> (attribute, colour in light, colour in dark). Light colours stand in the elements, for
# programs that know no style sheets; a style sheet replaces them where the reader prefers dark.
COLOURS = {
    "back": ("fill", "#ffffff", "#14171c"),
    "back-line": ("stroke", "#ffffff", "#14171c"),
    "band": ("fill", "#f5f6f8", "#1c2027"),
    "role": ("fill", "#e3ecfa", "#22314a"),
    "role-line": ("stroke", "#2f6fd0", "#4c8df0"),
    "lane": ("stroke", "#d3d9e2", "#3a424e"),
    "text": ("fill", "#1b2129", "#e4e8ee"),
    "soft": ("fill", "#5b6573", "#98a3b3"),
    "full": ("stroke", "#2f6fd0", "#5c9bf5"),
    "full-fill": ("fill", "#2f6fd0", "#5c9bf5"),
    "empty": ("stroke", "#b8651a", "#e69a4c"),
    "empty-fill": ("fill", "#b8651a", "#e69a4c"),
    "plain": ("stroke", "#5b6573", "#98a3b3"),
    "plain-fill": ("fill", "#5b6573", "#98a3b3"),
    "tiles0": ("fill", "#bcd4f6", "#2b4a78"),
    "tiles1": ("fill", "#c4e6d6", "#24573f"),
    "tiles2": ("fill", "#f6d9b8", "#6b4520"),
    "tiles3": ("fill", "#e2cdf0", "#523668"),
    "barriers": ("fill", "#b5484d", "#e0787d"),
    "free": ("fill", "#eceff3", "#21262e"),
}
_LETTER = 0.6  # of the size of the type: how wide a letter is, of a wide typeface
FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif'


def style() -> str:
    """The style sheet. JupyterLab says which theme it has; elsewhere the browser does."""
    light, dark = (
        [f"{{scope}}.tp-{name}{{{x[0]}:{x[number]}}}" for name, x in COLOURS.items()]
        for number in (1, 2)
    )
    by_browser = "".join(rule.replace("{scope}", "") for rule in dark)
    of_light, of_dark = (
        "".join(rule.replace("{scope}", f'[data-jp-theme-light="{is_light}"] ') for rule in rules)
        for is_light, rules in (("true", light), ("false", dark))
    )
    return f"@media (prefers-color-scheme:dark){{{by_browser}}}{of_light}{of_dark}"


def element(
    tag: str, inside: str = "", colours: tuple[str, ...] = (), **attributes: str | float
) -> str:
    """An element. `inside` is markup; `attributes` are texts, `_` in their names is `-`."""
    found = {name.replace("_", "-"): _written(x) for name, x in attributes.items()}
    for name in colours:
        attribute, light, _ = COLOURS[name]
        found[attribute] = light
    if colours:
        found["class"] = " ".join(f"tp-{name}" for name in colours)
    given = "".join(f' {name}="{escape(x)}"' for name, x in found.items())
    return f"<{tag}{given}>{inside}</{tag}>" if inside else f"<{tag}{given}/>"


def text(
    x: float, y: float, words: str, colour: str = "text", size: float = 12, anchor: str = "start",
    bold: bool = False, on: str = "",
) -> str:  # fmt: skip
    """A line of text. `on`: a colour that is laid over the lines behind it."""
    attributes: dict[str, str | float] = {"x": x, "y": y, "font_size": size, "text_anchor": anchor}
    if bold:
        attributes["font_weight"] = "600"
    line = element("text", escape(words), (colour,), **attributes)
    if not on or not words:
        return line
    wide = width(words, size)
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
    return rectangle(left - 2, y - size + 1, wide + 4, size + 3, on) + line


def rectangle(
    x: float, y: float, wide: float, high: float, *colours: str, radius: float = 0
) -> str:
    """A rectangle."""
    return element("rect", "", colours, x=x, y=y, width=wide, height=high, rx=radius)


def width(words: str, size: float = 12) -> float:
    """How wide a text may be, in units of the picture: of a wide typeface."""
    return len(words) * size * _LETTER


def clipped(words: str, most: float, size: float = 12) -> str:
    """A text, cut where it would be wider than that."""
    letters = max(int(most / (size * _LETTER)), 4)
    return words if len(words) <= letters else f"{words[: letters - 1]}…"


def _written(x: str | float) -> str:
    return x if isinstance(x, str) else f"{x:.1f}".removesuffix(".0")
