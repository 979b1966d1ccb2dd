"""A tiny network, attacks of one's own, and command lines with them."""

NET = """
import torch
from dataclasses import replace
from torch import nn
from ukemi.attacks import fgsm, from_callable

def net():
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 10))

def darker(model, images, labels):
    return fgsm(model, images, labels, epsilon=0.3)

def plain(model, images, labels):
    return images

def broken(model, images, labels):
    raise ValueError("no luck")

def changed(**parts):
    def attack(model, images, labels):
        found = fgsm(model, images, labels, epsilon=0.3)
        return replace(found, **{name: change(getattr(found, name)) for name, change in parts.items()})
    return attack

short = changed(images=lambda images: images[:2])
fewer = changed(success=lambda success: success[:2])
shares = changed(success=lambda success: success.float())
outside = changed(images=lambda images: images + 3)
nowhere = changed(images=lambda images: images * float("nan"))

def unlucky(model, images, labels):
    raise ValueError("no luck")

adapted = from_callable(unlucky)
"""

OWN = ["--model", "tiny_attacked:net", "--weights", "tiny.safetensors", "--data", "fashion-mini", "--device", "cpu"]
FEW = [*OWN, "--images", "60"]
QUICK = ["--levels", "2", "--gallery", "1", "--landscapes", "0"]
PGD = ["--attack", "pgd", "--epsilon", "8/255", "--steps", "4"]
