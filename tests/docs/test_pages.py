"""What the documents say holds: links lead somewhere, code is code, sums are right, pictures are whole."""

import ast
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from shared.idempotency import Policy
from tests.docs.pages import ROOT, Block, blocks, documents

TRIGGERS = ROOT / "shared" / "idempotency" / "triggers"


def _all(*languages: str) -> list[Block]:
    return [block for page in documents() for block in blocks(page, *languages)]


def _prose(page: Path) -> str:
    """A page without its fenced blocks and inline code."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def _anchors(page: Path) -> set[str]:
    """The names GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def _links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", _prose(page))


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    for link in _links(page):
        if link.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no such file"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        if anchor:
            assert anchor in _anchors(target), f"{link}: there is no such heading"


def test_no_link_is_unencrypted() -> None:
    assert [link for page in documents() for link in _links(page) if link.startswith("http:")] == []


def test_every_document_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _links(index)}

    assert set((ROOT / "docs").glob("*.md")) - {index} <= linked


@pytest.mark.parametrize("block", _all("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", _all("python"), ids=str)
def test_what_python_imports_from_the_module_is_there(block: Block) -> None:
    import importlib

    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shared."):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")


@pytest.mark.parametrize("block", _all("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", _all("mermaid"), ids=str)
def test_everybody_in_a_sequence_is_introduced(block: Block) -> None:
    first, _, rest = block.text.partition("\n")
    if first.strip() != "sequenceDiagram":
        assert first.split()[0] == "flowchart"
        return
    introduced = set(re.findall(r"^\s*(?:participant|actor) (\w+)", rest, re.MULTILINE))
    arrows = re.findall(r"^\s*(\w+)\s*-{1,2}(?:>>|x|\))\s*[+-]?(\w+)\s*:", rest, re.MULTILINE)
    notes = re.findall(r"^\s*Note (?:over|left of|right of) ([\w,]+):", rest, re.MULTILINE)
    named = {name for pair in arrows for name in pair} | {
        n for note in notes for n in note.split(",")
    }

    assert arrows
    assert named == introduced
    opened = re.findall(r"^\s*(?:alt|opt|loop|par|rect|critical)\b", rest, re.MULTILINE)
    assert len(opened) == len(re.findall(r"^\s*end\s*$", rest, re.MULTILINE))


def _value(sum_: str) -> Fraction:
    """The exact value of a sum of products and quotients of plain numbers."""
    total = Fraction(0)
    for term in sum_.replace(",", "").split("+"):
        factors = re.split(r"\s*([x/])\s*", term.strip())
        value = Fraction(factors[0])
        for sign, factor in zip(factors[1::2], factors[2::2], strict=True):
            value = value * Fraction(factor) if sign == "x" else value / Fraction(factor)
        total += value
    return total


SUM = re.compile(r"((?:[\d,.]+\s*[x/+]\s*)+[\d,.]+) = ([\d,]+(?:\.\d+)?)")


def _sums(text: str) -> list[tuple[str, str]]:
    return SUM.findall(text)


def test_every_sum_of_the_capacity_page_is_right() -> None:
    page = (ROOT / "docs" / "capacity.md").read_text("utf-8")
    arithmetic = [b for b in blocks(ROOT / "docs" / "capacity.md") if "arithmetic" in b.words]
    lines = [line for block in arithmetic for line in block.text.splitlines() if "=" in line]

    assert all(len(_sums(line)) == 1 for line in lines), "a line without a sum to check"
    for sum_, told in _sums(page):
        decimals = len(told.partition(".")[2])
        value = float(_value(sum_))
        if decimals:
            assert f"{value:,.{decimals}f}" == told, sum_
        else:
            assert f"{int(value):,}" == told, sum_
    assert len(_sums(page)) > 20


def test_every_adapter_is_in_the_table_of_what_was_run() -> None:
    adapters = {
        path.stem
        for path in TRIGGERS.glob("*.py")
        if "\ndef idempotent(" in path.read_text("utf-8")
    }
    page = (ROOT / "docs" / "support.md").read_text("utf-8")

    assert adapters
    assert {name for name in adapters if f"| `{name}`" not in page} == set()


def test_the_numbers_of_a_policy_are_its_defaults() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text("utf-8").partition("\n## The numbers\n")[2]
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    defaults = {name: getattr(Policy(), name) for name in Policy.__struct_fields__}

    def read(text: str) -> object:
        number, _, unit = text.partition(" ")
        if number in ("none", "yes"):
            return {"none": None, "yes": True}[number]
        return float(number) * {"": 1, "s": 1, "d": 86400}[unit]

    assert {name: read(text) for name, text in told.items()} == defaults


def test_five_minutes_tells_how_long_records_are_kept() -> None:
    page = (ROOT / "docs" / "five-minutes.md").read_text("utf-8")
    assert f"{Policy().retention / 86400:g} days" in page
