"""Shards: what lies in them is found, read in place and decoded; each way in which one can be wrong is told."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ukemi.data import decoding, load, shards
from ukemi.data.decoding import Files
from ukemi.errors import UserError

Members = list[tuple[str, bytes]]


def encoded(shade: int, size: tuple[int, int] = (8, 6), mode: str = "RGB", ending: str = "png") -> bytes:
    values = np.random.default_rng(shade).integers(0, 256, (size[1], size[0], 3), np.uint8)
    body = io.BytesIO()
    Image.fromarray(values).convert(mode).save(body, "jpeg" if ending == "jpg" else ending)
    return body.getvalue()


def shard(path: Path, members: Members) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, body in members:
            told = tarfile.TarInfo(name)
            told.size = len(body)
            archive.addfile(told, io.BytesIO(body))
    return path


def samples(first: int, count: int, classes: int = 2) -> Members:
    rows: Members = []
    for number in range(first, first + count):
        rows += [(f"s/{number:04d}.cls", f"{number % classes}\n".encode()), (f"s/{number:04d}.png", encoded(number))]
    return rows


def test_train_and_test_shards(tmp_path: Path) -> None:
    shard(tmp_path / "train" / "b.tar", samples(5, 3))
    shard(tmp_path / "train" / "a.tar", [*samples(0, 5), ("s/0000.json", b"{}"), ("README.txt", b"hello")])
    shard(tmp_path / "val" / "a.tar", samples(8, 2))
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    data = load(tmp_path)
    assert data.classes == ("cat", "dog") and data.name == tmp_path.name
    assert data.train.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 1] and data.test.labels.tolist() == [0, 1]
    assert isinstance(data.train.images, torch.Tensor)
    for at in (0, 4, 5, 7):
        expected = np.asarray(Image.open(io.BytesIO(encoded(at)))).transpose(2, 0, 1)
        assert np.array_equal(data.train.images[at], expected)


def test_shards_alone_are_split_by_the_seed_and_streamed_they_are_the_same(tmp_path: Path) -> None:
    shard(tmp_path / "0.tar", samples(0, 12))
    shard(tmp_path / "1.tar", samples(12, 8))
    held, streamed = load(tmp_path), load(tmp_path, stream=True)
    assert held.classes == ("0", "1") and len(held.test) == 4
    assert not isinstance(streamed.train.images, torch.Tensor)
    assert torch.equal(held.train.index, streamed.train.index)
    every = torch.arange(len(held.train))
    assert torch.equal(held.train.images[every], streamed.train.images[every])


def test_large_shards_stream_by_themselves_and_are_brought_to_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "MEMORY_LIMIT", 100)
    shard(tmp_path / "train" / "0.tar", [*samples(0, 4), ("x.cls", b"1"), ("x.JPG", encoded(9, (20, 10), "L", "jpg"))])
    shard(tmp_path / "test" / "0.tar", samples(4, 2))
    found = load(tmp_path, size=5).train.images
    assert isinstance(found, Files) and tuple(found.shape) == (5, 3, 5, 5)
    assert found[torch.tensor([4, 0])].shape == (2, 3, 5, 5)
    with pytest.raises(
        UserError,
        match=r"should be of one size, but .*0\.tar: s/0000\.png has 6 x 8 and .*: x\.JPG has.*, as --size 64\.$",
    ):
        load(tmp_path)


def test_many_shards_are_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        shard(tmp_path / f"{number}.tar", samples(5 * number, 5))
    alone = load(tmp_path)
    monkeypatch.setattr(shards, "MANY", 2)
    several = load(tmp_path)
    assert torch.equal(alone.train.images, several.train.images)  # type: ignore[arg-type]
    assert torch.equal(alone.test.labels, several.test.labels)
    shard(tmp_path / "3.tar", [("a.png", encoded(0))])
    with pytest.raises(UserError, match=r"3\.tar: a lacks its label"):
        load(tmp_path)


def test_a_table_is_kept_beside_a_shard_for_as_long_as_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = shard(tmp_path / "0.tar", samples(0, 5)), tmp_path / "0.tar.table"
    expected = shards._of_shard(path)
    assert shards._kept(path) is None and torch.equal(shards._keep(path), expected)
    found = shards._kept(path)
    assert found is not None and torch.equal(found, expected) and sorted(tmp_path.iterdir()) == [path, table]
    whole = table.read_bytes()
    for wrong in (b"", b"no table", whole[:-8]):
        table.write_bytes(wrong)
        assert shards._kept(path) is None
    table.write_bytes(whole)
    assert shards._kept(path) is not None
    shard(path, samples(7, 3))  # written anew
    assert shards._kept(path) is None and len(shards._keep(path)) == 3
    monkeypatch.setattr(np, "save", lambda *given: (_ for _ in ()).throw(PermissionError("read only")))
    table.unlink()
    assert len(shards._keep(path)) == 3 and not table.exists()


def test_kept_tables_are_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        shard(tmp_path / f"{number}.tar", samples(5 * number, 5))
    alone = load(tmp_path)
    monkeypatch.setattr(shards, "MANY", 2)
    load(tmp_path)
    (tmp_path / "2.tar.table").unlink()
    again = load(tmp_path)
    assert len(list(tmp_path.glob("*.tar.table"))) == 4
    monkeypatch.setattr(shards, "ProcessPoolExecutor", None)  # nobody is asked any more
    last = load(tmp_path)
    for found in (again, last):
        assert torch.equal(alone.train.images, found.train.images)  # type: ignore[arg-type]
        assert torch.equal(alone.test.labels, found.test.labels)


def test_few_shards_leave_their_folder_as_it_is(tmp_path: Path) -> None:
    shard(tmp_path / "0.tar", samples(0, 12))
    load(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["0.tar"]


def test_a_damaged_image_is_named_with_its_shard(tmp_path: Path) -> None:
    rows = samples(0, 6)
    rows[5] = ("s/0002.png", encoded(2)[:60])
    shard(tmp_path / "train" / "0.tar", rows)
    shard(tmp_path / "test" / "0.tar", samples(6, 2))
    with pytest.raises(UserError, match=r"^data: .*train/0\.tar: s/0002\.png can't be decoded"):
        load(tmp_path, size=8)
    streamed = load(tmp_path, size=8, stream=True).train.images
    assert len(streamed[torch.tensor([1])]) == 1
    with pytest.raises(UserError, match=r"0\.tar: s/0002\.png can't be decoded"):
        streamed[torch.tensor([2])]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no KEY.jpg"),
        ([("a.png", encoded(0))], "a lacks its label"),
        ([("a.cls", b"0")], "a lacks its image"),
        ([("a.png", encoded(0)), ("a.jpg", encoded(0))], "a has two images"),
        ([("a.png", encoded(0)), ("a.cls", b"cat")], "a.cls should hold a whole number, but 'cat' is there"),
        ([("a.png", encoded(0)), ("a.cls", b"-1")], "should hold a whole number"),
        ([("a.png", encoded(0)), ("a.cls", b"0" * 1000)], "should hold a whole number"),
        (samples(0, 4, classes=1), "there is one class only"),
        ([*samples(0, 4), ("z.png", encoded(0)), ("z.cls", b"3")], r"class '2' \(label 2\) has no image"),
    ],
)
def test_what_is_wrong_with_a_shard(tmp_path: Path, rows: Members, said: str) -> None:
    shard(tmp_path / "0.tar", rows)
    with pytest.raises(UserError, match=said):
        load(tmp_path)


def test_links_compressed_and_torn_archives_are_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("a.png")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        archive.addfile(link)
    with pytest.raises(UserError, match=r"a\.png is no plain file"):
        load(tmp_path)
    with tarfile.open(tmp_path / "0.tar", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.png"))
    with pytest.raises(UserError, match=r"can't be read as an uncompressed \.tar archive"):
        load(tmp_path)
    body = shard(tmp_path / "0.tar", samples(0, 4)).read_bytes()
    (tmp_path / "0.tar").write_bytes(body[: len(body) // 2 - 100])
    with pytest.raises(UserError, match=r"0\.tar"):
        load(tmp_path)


def test_names_that_are_too_few_and_parts_that_are_missing(tmp_path: Path) -> None:
    shard(tmp_path / "train" / "0.tar", samples(0, 4))
    with pytest.raises(UserError, match="has shards in train, but none in test"):
        load(tmp_path)
    shard(tmp_path / "test" / "0.tar", samples(0, 4))
    (tmp_path / "classes.txt").write_text("cat\n")
    with pytest.raises(UserError, match=r"classes\.txt names 1 classes, but there is a label 1"):
        load(tmp_path)


def test_grey_shards_as_three_channels(tmp_path: Path) -> None:
    rows = [
        (f"s/{n}.{end}", body)
        for n in range(6)
        for end, body in (("cls", b"%d" % (n % 2)), ("png", encoded(n, mode="L")))
    ]
    shard(tmp_path / "a.tar", rows)
    assert load(tmp_path).train.channels == 1
    three = load(tmp_path, channels=3).train
    batch = three.batch(torch.arange(len(three)), "cpu").images
    assert batch.shape[1] == 3 and torch.equal(batch[:, 0], batch[:, 2])
