"""What a log knows of an epoch: the genes that were trained on, and where its seconds went."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ukemi import T3, T6, Gene, Space
from ukemi.augmenters import AUGMENTERS
from ukemi.training import TrainConfig, train
from ukemi.training.spent import BINS, Spent, count_genes, genes_line

COARSE = Space((Gene("rotation", -30, 30, 0, 30), Gene("shear", -0.1, 0.1, 0, 0.01)))


def slowly(genes: list[list[float]], space: Space) -> list[list[int]]:
    """The same count in plain Python."""
    counts = [[0] * BINS for _ in space.genes]
    for row in genes:
        for at, (gene, value) in enumerate(zip(space.genes, row, strict=True)):
            levels = gene.levels if space.discrete else 65535
            code = round((value - gene.low) / (gene.high - gene.low) * (levels - 1))
            counts[at][code * min(levels, BINS) // levels] += 1
    return counts


@pytest.mark.parametrize("space", [T3, T6, COARSE, T3.continuous()], ids=["t3", "t6", "coarse", "continuous"])
def test_genes_are_counted_by_the_parts_of_their_ranges(space: Space) -> None:
    genes = space.sample(torch.arange(400), seed=3)[:, 0]
    found = count_genes(genes, space)
    assert found.tolist() == slowly(genes.tolist(), space)
    for row, gene in zip(genes_line(found, space), space.genes, strict=True):
        assert sum(row["counts"]) == 400 and row["gene"] == gene.name
        assert len(row["counts"]) == min(BINS, row["levels"]) and (row["low"], row["high"]) == (gene.low, gene.high)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=20))
def test_a_gene_of_few_levels_has_a_part_per_level(codes: list[int]) -> None:
    genes = COARSE.decode(torch.tensor([[code, 0] for code in codes]))
    counts = genes_line(count_genes(genes, COARSE), COARSE)[0]["counts"]
    assert counts == [codes.count(level) for level in range(3)]


def test_waiting_is_told_from_working(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches, each waited for 1 second and worked on for 2, by a clock of our own."""
    clock = [100.0]
    monkeypatch.setattr("ukemi.training.spent.monotonic", lambda: clock[0])

    def arriving() -> Iterator[int]:
        for number in range(3):
            clock[0] += 1
            yield number

    spent, still = Spent(), {"scoring_seconds": 0.0, "validation_seconds": 0.0}
    for _ in range(2):  # from 0 again every epoch
        for _ in spent.waited(arriving()):
            spent.images += 6
            clock[0] += 2
        assert spent.taken() == {"images_per_second": 2.0, "data_seconds": 3.0, **still}
    assert spent.taken() == {"images_per_second": 2.0, "data_seconds": 0.0, **still}


def test_scoring_and_validation_are_taken_once() -> None:
    spent = Spent()
    with spent.search():
        pass
    assert spent.scoring > 0
    spent.validation = 1.5
    assert spent.taken()["validation_seconds"] == 1.5
    assert spent.taken()["validation_seconds"] == spent.taken()["scoring_seconds"] == 0


@pytest.mark.parametrize(("name", "searched"), [("standard", False), ("random", True), ("worst-of", True)])
def test_a_log_knows_genes_and_seconds(name: str, searched: bool, tmp_path: Path) -> None:
    config = TrainConfig(
        augmenter=AUGMENTERS[name](), epochs=2, batch_size=500, out=tmp_path / "run", device="cpu", validation=0.9
    )
    log = train(config, quiet=True).read_log()
    for line in log:
        assert ("genes" in line) == searched and line["data_seconds"] >= 0 and line["validation_seconds"] > 0
        assert line["scoring_seconds"] > 0 or name == "standard"
        assert line["data_seconds"] + line["scoring_seconds"] + line["validation_seconds"] < line["seconds"]
        if searched:
            assert [one["gene"] for one in line["genes"]] == [gene.name for gene in T3.genes]
            assert {sum(one["counts"]) for one in line["genes"]} == {line["images"]}
