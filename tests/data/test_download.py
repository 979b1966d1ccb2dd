"""Downloads from a server on this machine that breaks off, lies and moves."""

import hashlib
import io
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from ukemi.data import SOURCES, load
from ukemi.data import download as module
from ukemi.data.download import RemoteFile, download, fetch, unpack
from ukemi.errors import UserError

CONTENT = np.random.default_rng(0).bytes(1_000_000)


class Server(ThreadingHTTPServer):
    """Serves `content` by path; `ranges` turns range support off, `broken` cuts that many first answers short."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content: dict[str, bytes] = {}
        self.ranges = True
        self.broken = 0
        self.busy = 0
        self.asked: list[tuple[str, str | None]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        if self.server.busy:
            self.server.busy -= 1
            return self.send_error(503)
        if self.path not in self.server.content:
            return self.send_error(404)
        content, start = self.server.content[self.path], 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if self.server.broken:
            self.server.broken -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "TIMEOUT", 10.0)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with Server() as server:
        server.content["/x.bin"] = CONTENT
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(*urls: str, content: bytes = CONTENT, name: str = "x.bin") -> RemoteFile:
    return RemoteFile(name, urls, hashlib.md5(content).hexdigest(), len(content))


def refused(file: RemoteFile, folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        download(file, folder)
    assert str(caught.value).startswith("data: ")
    return str(caught.value)


def test_a_file_arrives_whole_under_its_name(server: Server, tmp_path: Path) -> None:
    path = download(remote(server.url("/x.bin")), tmp_path / "new" / "folder")
    assert path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["x.bin"]


def test_what_is_there_and_right_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(CONTENT)
    download(remote(server.url("/x.bin")), tmp_path)
    assert not server.asked


def test_what_is_there_and_wrong_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"other")
    assert download(remote(server.url("/x.bin")), tmp_path).read_bytes() == CONTENT


def test_a_broken_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.broken = 2
    assert download(remote(server.url("/x.bin")), tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == [None, "bytes=500000-", "bytes=750000-"]


def test_a_part_of_an_earlier_process_is_resumed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin.part").write_bytes(CONTENT[:123_456])
    assert download(remote(server.url("/x.bin")), tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/x.bin", "bytes=123456-")]
    assert not (tmp_path / "x.bin.part").exists()


def test_a_whole_part_only_gets_its_name(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin.part").write_bytes(CONTENT)
    assert download(remote(server.url("/x.bin")), tmp_path).read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin.part").write_bytes(CONTENT + b"more")
    assert download(remote(server.url("/x.bin")), tmp_path).read_bytes() == CONTENT


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.broken = 1
    (tmp_path / "x.bin.part").write_bytes(b"x" * 999)
    assert download(remote(server.url("/x.bin")), tmp_path).read_bytes() == CONTENT


def test_a_part_of_another_file_is_found_out_and_fetched_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin.part").write_bytes(b"x" * 5000)
    assert download(remote(server.url("/x.bin")), tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == ["bytes=5000-", None]


def test_the_second_mirror_serves_where_the_first_does_not(server: Server, tmp_path: Path) -> None:
    file = remote(server.url("/moved.bin"), server.url("/x.bin"))
    assert download(file, tmp_path).read_bytes() == CONTENT
    assert [path for path, _ in server.asked] == ["/moved.bin", "/x.bin"]


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.busy = 2
    assert download(remote(server.url("/x.bin")), tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_is_told_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    message = refused(remote(server.url("/x.bin"), content=b"something else"), tmp_path)
    assert "x.bin could not be downloaded (127.0.0.1" in message
    assert "the checksum is wrong" in message
    assert not list(tmp_path.iterdir())
    assert len(server.asked) == 1


def test_a_wrong_mirror_is_followed_by_the_right_one(server: Server, tmp_path: Path) -> None:
    server.content["/wrong"] = CONTENT[::-1]
    assert download(remote(server.url("/wrong"), server.url("/x.bin")), tmp_path).read_bytes() == CONTENT


def test_every_failure_is_told(server: Server, tmp_path: Path) -> None:
    server.content["/cut"] = CONTENT
    server.broken = 99
    message = refused(remote(server.url("/none"), server.url("/cut")), tmp_path)
    assert "HTTP 404" in message
    assert "the connection broke off after" in message
    assert (tmp_path / "x.bin.part").stat().st_size == 875_000  # kept for the next time


def test_no_network_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        message = refused(remote(f"http://127.0.0.1:{free.getsockname()[1]}/x.bin"), tmp_path)
    assert "Connection refused" in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin.part").symlink_to("/dev/full")
    assert f"the disk of {tmp_path} is full" in refused(remote(server.url("/x.bin")), tmp_path)


def test_a_folder_that_can_not_be_made_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "can't be written" in refused(remote(server.url("/x.bin")), tmp_path / "file" / "folder")


def tar(members: dict[str, bytes], link: str | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
        if link:
            entry = tarfile.TarInfo("link")
            entry.type, entry.linkname = tarfile.SYMTYPE, link
            file.addfile(entry)
    return packed.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return packed.getvalue()


def test_archives_are_unpacked_into_one_tree_and_removed(server: Server, tmp_path: Path) -> None:
    server.content["/a.tar.gz"] = tar({"GTSRB/train/1": b"one"})
    server.content["/b.zip"] = zipped({"GTSRB/test/2": b"two", "labels.csv": b"x"})
    files = tuple(
        remote(server.url(path), content=content, name=path[1:])
        for path, content in server.content.items()
        if path != "/x.bin"
    )
    fetch(files, tmp_path)
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"GTSRB/train/1": b"one", "GTSRB/test/2": b"two", "labels.csv": b"x"}
    assert sorted(os.listdir(tmp_path)) == ["GTSRB", "labels.csv"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.tar.gz", tar({"../escaped": b"x"})),
        ("x.tar.gz", tar({}, link="/etc/passwd")),
        ("x.zip", zipped({"../escaped": b"x"})),
        ("x.zip", zipped({"good": b"x"})[:-30]),
        ("x.tar.gz", tar({"good": CONTENT})[:-3000]),
        ("x.tar.gz", b"no archive"),
    ],
    ids=["tar-out", "tar-link", "zip-out", "zip-cut", "tar-cut", "no-archive"],
)
def test_archives_that_lead_out_or_are_damaged_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"^data: .*{name} can't be unpacked"):
        unpack(folder / name, folder)
    assert os.listdir(folder) == [name]
    assert os.listdir(tmp_path) == ["folder"]


def test_a_set_is_downloaded_only_where_that_is_allowed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = np.zeros((2, 3073), np.uint8)
    record[:, 0] = (0, 1)
    stems = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    server.content["/c.tar.gz"] = tar({f"cifar-10-batches-bin/{stem}.bin": record.tobytes() for stem in stems})
    file = remote(server.url("/c.tar.gz"), content=server.content["/c.tar.gz"], name="cifar-10-binary.tar.gz")
    monkeypatch.setitem(SOURCES, "cifar10", replace(SOURCES["cifar10"], files=(file,)))
    with pytest.raises(UserError, match=r"cifar10 was not found"):
        load("cifar10", folder=tmp_path)
    assert not server.asked
    assert len(load("cifar10", folder=tmp_path, download=True).train) == 10
    assert len(load("cifar10", folder=tmp_path, download=True).test) == 2
    assert len(server.asked) == 1
