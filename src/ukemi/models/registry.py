"""The table of networks: adding one is a factory and a line here."""

from ukemi.models.demo import demo_cnn
from ukemi.models.shape import Entry, Shape

FASHION = Shape(1, (28, 28), 10)

MODELS: dict[str, Entry] = {
    "demo-cnn": Entry(demo_cnn, "three strided convolutions for the demo", FASHION, "ukemi"),
}
"""Every network by its name."""
