"""Tiny networks that drop, and command lines with them."""

NET = """
from torch import nn

def net():
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(49, 10))

class Breaking(nn.Sequential):
    def forward(self, images):
        return super().forward(images) / (images.mean((1, 2, 3)) < 0.4)[:, None]  # bright images have no answer

def breaking():
    return Breaking(*net())

def zero():
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Dropout(0.0), nn.Linear(49, 10))

def plain():
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Identity(), nn.Linear(49, 10))
"""

TEN = ["--passes", "10"]
BASE = ["--weights", "tiny.safetensors", "--data", "fashion-mini", "--device", "cpu", *TEN]
OWN = ["--model", "tiny_unsure:net", *BASE]
PLAIN = ["--model", "tiny_unsure:plain", *BASE]
GIVEN = ["--pcs-thresholds", "0.5", "--vr-thresholds", "0.2"]
FEW = ["--images", "60", "--validation-images", "60", "--attacks", "fgsm", "--epsilon", "0.1"]
QUICK = ["--population", "8", "--generations", "3"]
