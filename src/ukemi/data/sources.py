"""The known data sets: one entry each says what it is, where it comes from and who reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ukemi.data.cifar import holds_cifar, read_cifar
from ukemi.data.classes import CIFAR, DIGITS, FASHION, SIGNS
from ukemi.data.dataset import DataSet
from ukemi.data.decoding import Wish
from ukemi.data.download import RemoteFile
from ukemi.data.gtsrb import SIZE as GTSRB_SIZE
from ukemi.data.gtsrb import holds_gtsrb, read_gtsrb
from ukemi.data.idx import holds_idx, read_idx_set
from ukemi.data.imdb_wiki import AGES, class_names, holds_imdb_wiki, read_imdb_wiki
from ukemi.data.imdb_wiki import SIZE as IMDB_SIZE
from ukemi.data.npz import fashion_mini
from ukemi.data.svhn import holds_svhn, read_svhn


@dataclass(frozen=True)
class Source:
    """A known data set."""

    name: str
    about: str
    images: str
    licence: str
    classes: tuple[str, ...]
    page: str
    read: Callable[[Path, Wish], DataSet]
    """reads the official files in a folder"""
    holds: Callable[[Path], bool] | None = None
    """whether a folder holds the official files; None for the set inside the package"""
    files: tuple[RemoteFile, ...] = ()
    """what a download fetches; empty where the set can't be had without asking"""
    inside: tuple[str, ...] = (".",)
    """folders in which the official archives and other tools put the files"""
    arrays: tuple[str, ...] = ()
    """names of .npz files beside `<name>.npz`"""


def _mirrored(file: str, mirrors: tuple[str, ...], md5: str, size: int) -> RemoteFile:
    return RemoteFile(file, tuple(mirror + file for mirror in mirrors), md5, size)


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
_FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_CIFAR = ("https://www.cs.toronto.edu/~kriz/",)
_SVHN = ("http://ufldl.stanford.edu/housenumbers/",)
_GTSRB = ("https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/",)

_ALL = (
    Source(
        "fashion-mini",
        "600 + 100 images per class of Fashion-MNIST, part of this package",
        "6,000 + 1,000 of 28 x 28, grey, 10 classes",
        "MIT",
        FASHION,
        "https://github.com/zalandoresearch/fashion-mnist",
        lambda folder, wish: fashion_mini(),
    ),
    Source(
        "fashion-mnist",
        "Fashion-MNIST: Zalando's articles",
        "60,000 + 10,000 of 28 x 28, grey, 10 classes",
        "MIT",
        FASHION,
        "https://github.com/zalandoresearch/fashion-mnist",
        lambda folder, wish: read_idx_set(folder, "fashion-mnist", FASHION),
        lambda folder: holds_idx(folder, "fashion-mnist"),
        (
            _mirrored("train-images-idx3-ubyte.gz", _FASHION, "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            _mirrored("train-labels-idx1-ubyte.gz", _FASHION, "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            _mirrored("t10k-images-idx3-ubyte.gz", _FASHION, "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            _mirrored("t10k-labels-idx1-ubyte.gz", _FASHION, "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
        (".", "FashionMNIST/raw"),
    ),
    Source(
        "mnist",
        "MNIST: handwritten digits",
        "60,000 + 10,000 of 28 x 28, grey, 10 classes",
        "none stated; free for research",
        DIGITS,
        "http://yann.lecun.com/exdb/mnist/",
        lambda folder, wish: read_idx_set(folder, "mnist", DIGITS),
        lambda folder: holds_idx(folder, "mnist"),
        (
            _mirrored("train-images-idx3-ubyte.gz", _MNIST, "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            _mirrored("train-labels-idx1-ubyte.gz", _MNIST, "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            _mirrored("t10k-images-idx3-ubyte.gz", _MNIST, "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            _mirrored("t10k-labels-idx1-ubyte.gz", _MNIST, "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
        (".", "MNIST/raw"),
    ),
    Source(
        "cifar10",
        "CIFAR-10: small photographs of animals and vehicles",
        "50,000 + 10,000 of 32 x 32, RGB, 10 classes",
        "none stated; free for research",
        CIFAR,
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        lambda folder, wish: read_cifar(folder),
        holds_cifar,
        (_mirrored("cifar-10-binary.tar.gz", _CIFAR, "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),),
        (".", "cifar-10-batches-bin", "cifar-10-batches-py"),
    ),
    Source(
        "svhn",
        "SVHN: house numbers from Street View, cropped digits",
        "73,257 + 26,032 of 32 x 32, RGB, 10 classes",
        "for non-commercial use",
        DIGITS,
        "http://ufldl.stanford.edu/housenumbers/",
        lambda folder, wish: read_svhn(folder),
        holds_svhn,
        (
            _mirrored("train_32x32.mat", _SVHN, "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
            _mirrored("test_32x32.mat", _SVHN, "eb5a983be6a315427106f1b164d9cef3", 64_275_384),
        ),
    ),
    Source(
        "gtsrb",
        "GTSRB: German traffic signs, brought to 32 x 32",
        "39,209 + 12,630 of 15 x 15 to 250 x 250, RGB, 43 classes",
        "none stated; free for research",
        SIGNS,
        "https://benchmark.ini.rub.de/",
        lambda folder, wish: read_gtsrb(folder, size=wish.size or GTSRB_SIZE),
        holds_gtsrb,
        (
            _mirrored("GTSRB_Final_Training_Images.zip", _GTSRB, "f33fd80ac59bff73c82d25ab499e03a3", 276_294_756),
            _mirrored("GTSRB_Final_Test_Images.zip", _GTSRB, "c7e4e6327067d32654124b0fe9e82185", 88_978_620),
            _mirrored("GTSRB_Final_Test_GT.zip", _GTSRB, "fe31e9c9270bbcd7b84b7f21a9d9d9e5", 99_620),
        ),
        arrays=("gtsrb32.npz",),
    ),
    Source(
        "imdb-wiki",
        "IMDB-WIKI: faces by age, brought to 128 x 128",
        "460,723 + 62,328 faces, RGB, 5 classes of age; a fifth of the persons is the test",
        "for academic research",
        class_names(AGES),
        "https://data.vision.ee.ethz.ch/cvl/rrothe/imdb-wiki/",
        lambda folder, wish: read_imdb_wiki(folder, size=wish.size or IMDB_SIZE, seed=wish.seed),
        holds_imdb_wiki,
    ),
)

SOURCES = {source.name: source for source in _ALL}
"""The known sets by name."""
