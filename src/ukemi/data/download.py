"""Fetching the official files: resumed where broken off, checked before they get their name."""

import errno
import hashlib
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ukemi.errors import UserError

ATTEMPTS = 3
"""Per mirror."""
PAUSE = 1.0
"""Seconds before the second attempt; doubled for each further one."""
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""

_CHUNK = 1 << 18
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
_RANGE_NOT_SATISFIABLE = 416


@dataclass(frozen=True)
class RemoteFile:
    """An official file: its name, where it lies (mirrors in order), its published MD5 and its size in bytes."""

    name: str
    urls: tuple[str, ...]
    md5: str
    size: int


class _Broken(Exception):
    """A mirror that did not deliver; `again` where another attempt may help."""

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        self.again = again


def fetch(files: tuple[RemoteFile, ...], folder: Path) -> None:
    """All `files` in `folder`, archives unpacked and removed."""
    for file in files:
        path = download(file, folder)
        if path.name.endswith(_ARCHIVES):
            unpack(path, folder)
            path.unlink()


def download(file: RemoteFile, folder: Path) -> Path:
    """The file in `folder`, fetched from the first mirror that delivers it whole; an archive stays packed.

    What has arrived is kept as `<name>.part` and resumed by the next call, even in another process.
    """
    target = folder / file.name
    if target.is_file() and _md5(target) == file.md5:
        return target
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{file.name}.part"
        failures: list[str] = []
        for url in file.urls:
            failure = _from_mirror(file, url, part)
            if failure is None:
                part.replace(target)
                return target
            failures.append(f"{urlsplit(url).netloc}: {failure}")
    raise UserError(f"data: {file.name} could not be downloaded ({'; '.join(failures)}).")


def unpack(archive: Path, folder: Path) -> None:
    """The files of an archive in `folder`, and nowhere else; each gets its name when it is whole."""
    with _writable(folder), tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as place:
        try:
            if archive.suffix == ".zip":
                _unzip(archive, Path(place))
            else:
                with tarfile.open(archive) as packed:
                    packed.extractall(place, filter="data")
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise UserError(f"data: {archive} can't be unpacked ({error}).") from None
        for path in sorted(path for path in Path(place).rglob("*") if path.is_file()):
            target = folder / path.relative_to(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)


def _unzip(archive: Path, place: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            if not (place / name).resolve().is_relative_to(place.resolve()):
                raise UserError(f"data: {archive} can't be unpacked ({name!r} leads out of its folder).")
        packed.extractall(place)


def _from_mirror(file: RemoteFile, url: str, part: Path) -> str | None:
    """Fetches into `part`; the reason where it did not work, None where the whole file is there and right."""
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        resumed = part.is_file() and part.stat().st_size > 0
        try:
            _transfer(file, url, part)
        except _Broken as broken:
            reason = str(broken)
            if broken.again:
                continue
            return reason
        if _md5(part) == file.md5:
            return None
        part.unlink()
        reason = "the checksum is wrong"
        if not resumed:
            return reason
    return reason


def _transfer(file: RemoteFile, url: str, part: Path) -> None:
    """Appends what is missing to `part`; a server that ignores the range starts it again."""
    start = part.stat().st_size if part.is_file() else 0
    try:
        with _response(url, start) as response:
            if response.status != 206 or not _begins_at(response, start):
                start = 0
            length = response.headers.get("Content-Length")
            total = start + int(length) if length else file.size
            received = _write(response, part, start, total, file.name)
    except HTTPError as error:
        error.close()
        if error.code == _RANGE_NOT_SATISFIABLE and start:  # the part is whole already, or no part of this file
            if start == file.size:
                return
            part.unlink()
            raise _Broken("the part on disk does not fit", again=True) from None
        raise _Broken(f"HTTP {error.code}", again=error.code >= 500) from None
    except (HTTPException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        raise _Broken(str(getattr(error, "reason", error)) or type(error).__name__, again=True) from None
    if received < total:
        raise _Broken(f"the connection broke off after {received} of {total} bytes", again=True)


def _response(url: str, start: int) -> HTTPResponse:
    headers = {"User-Agent": "ukemi", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    return response


def _begins_at(response: HTTPResponse, start: int) -> bool:
    return response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _write(response: HTTPResponse, part: Path, start: int, total: int, name: str) -> int:
    """The size of `part` after all that came was written behind its first `start` bytes."""
    with part.open("ab" if start else "wb") as file, _bar() as bar:
        task = bar.add_task(name, total=total, completed=start)
        while chunk := response.read(_CHUNK):
            file.write(chunk)
            start += len(chunk)
            bar.update(task, completed=start)
    return start


def _bar() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Tells of a full disk or a folder that can't be written in one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"data: the disk of {folder} is full; what has arrived is kept and resumed.") from None
        raise UserError(f"data: {folder} can't be written ({error.strerror or error}).") from None
