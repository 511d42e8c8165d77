"""The page of licences names every dependency, and says of each what is installed."""

from __future__ import annotations

from tools.docs import licences


def test_the_page_says_what_the_installed_packages_say() -> None:
    rows = {name: said for name, said, _ in licences.ROW.findall(licences.PAGE.read_text("utf-8"))}
    assert set(licences.direct()) <= rows.keys()
    installed = {name: licences.licence(name) for name in licences.needed()}
    there = {name: said for name, said in installed.items() if said is not None}
    assert {"numpy", "rich", "pytest"} <= there.keys()
    assert {name: rows.get(name) for name in there} == there, "python -m tools.docs.licences"


def test_no_package_that_everybody_installs_has_a_licence_that_binds_others() -> None:
    page = licences.PAGE.read_text(encoding="utf-8")
    always = {name: said for name, said, extras in licences.ROW.findall(page) if "always" in extras}
    assert "numpy" in always
    assert [name for name, said in always.items() if "GPL" in said or "not stated" in said] == []
