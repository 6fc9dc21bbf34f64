"""The check of the documentation finds what is missing and leaves alone what is not a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_docs import anchors, check


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Give a small repository with a Makefile, a module and a page."""
    (tmp_path / "Makefile").write_text("demo: ## Run it\n\ttrue\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "merge.md").write_text("# Merge\n\n## Dry run\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "demo.sh").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[m](docs/merge.md#dry-run) and [a](#title)", None),
        ("[m](docs/mergers.md)", "docs/mergers.md does not exist"),
        ("[m](docs/merge.md#wet-run)", "merge.md has no heading for #wet-run"),
        ("![picture](docs/missing.png)", "docs/missing.png does not exist"),
        ("[m]: docs/mergers.md", "docs/mergers.md does not exist"),
        ("[elsewhere](https://ducklake.select/docs)", None),
        ("run `scripts/demo.sh`", None),
        ("run `scripts/demon.sh`", "`scripts/demon.sh` does not exist"),
        ("a fraction `3/4`, a URL `s3://bucket/a`, a key `main/flights`", None),
        ("`make demo` or make it", None),
        ("`make demons`", "the Makefile has no target 'demons'"),
        ("```bash\nmake demons\n```", "the Makefile has no target 'demons'"),
        ("```\n[m](nowhere.md) `docs/nowhere.md`\n```", None),
    ],
)
def test_faults_are_found(repository: Path, text: str, fault: str | None) -> None:
    """Each kind of reference, right and wrong."""
    (repository / "README.md").write_text(f"# Title\n\n{text}\n")
    assert [found.text for found in check(repository)] == ([fault] if fault else [])


def test_fault_tells_page_and_line(repository: Path) -> None:
    """A fault reads as a place an editor can jump to."""
    (repository / "docs" / "page.md").write_text("# Page\n\n```\ncode\n```\n\n[x](y.md)\n")
    assert [str(fault) for fault in check(repository)] == [
        "docs/page.md:7: y.md does not exist",
    ]


def test_anchors_are_those_of_github() -> None:
    """Punctuation goes, spaces become hyphens, a repeated heading is numbered."""
    text = "# What it is: `make demo`!\n\n## A\n\n## A\n\n```\n# not a heading\n```\n"
    assert anchors(text) == {"what-it-is-make-demo", "a", "a-1"}
