"""Why STYX's figures may be so high: gradients that vanish where a model is sure of itself.

    python benchmarks/styx_masking.py --models "mnist MLP" "fashion MLP" --data FOLDER --out results/styx-masking-cpu.md

Keras, whose models the paper's tool attacks, takes the cross-entropy of probabilities clipped to 1e-7 from 0 and 1.
Behind the clip there is no gradient, so an attack does not move an image that the model is surer of than that. The same
traditionally trained network is attacked twice with the released grid of settings: with our gradient (log odds of the
logits), and through such a clip.
"""

import argparse
import platform
import tempfile
from pathlib import Path

import torch
from lines import commit, device_name
from styx import ATTACKS, MODELS, attacked, told
from torch import Tensor, nn

import ukemi
from ukemi.data import as_float
from ukemi.training import train
from ukemi.training.setup import fixed_subset, load_sets, trained_model

CLIP = 1e-7


class Clipped(nn.Module):
    """The same answers through clipped probabilities."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.model(images).softmax(1).clamp(CLIP, 1 - CLIP).log()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["mnist MLP", "fashion MLP"])
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="instead of the paper's")
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = "# STYX's grid of attacks with and without a gradient\n\n"
    text += f"`python benchmarks/styx_masking.py --images {args.images} --seed {args.seed}` on {device_name()}, ukemi"
    text += f" {ukemi.__version__}, torch {torch.__version__}, Python {platform.python_version()}, commit {commit()}.\n"
    text += (
        "Traditional training, one seed; robustness as in the paper (1 - fooled / recognised, mean over the released"
    )
    text += " grid), in percent. *Sure*: recognised images whose probability lies within 1e-7 of 1.\n\n"
    text += "| model | attack | our gradient | through the clip | the paper's Figure 4, by eye | sure |\n"
    text += "| --- " * 6 + "|\n"
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder:
            config = told(model, "traditional", args.seed, args, Path(folder) / "run")
            net, test = trained_model(train(config, quiet=True), config, load_sets(config).test)
        device = config.chosen_device()
        net, few = net.to(device).eval(), fixed_subset(test, args.images, 0).to(device)
        with torch.no_grad():
            shares = net(as_float(few.images[torch.arange(len(few))])).double().softmax(1)
        own = shares.gather(1, few.labels[:, None])[:, 0][shares.argmax(1) == few.labels]
        sure = float((own > 1 - CLIP).double().mean())
        ours, clipped = attacked(net, few), attacked(Clipped(net), few)
        for attack in ATTACKS:
            paper = 100 * MODELS[model]["paper"][attack]["traditional"]
            row = f"| {model} | {attack} | {100 * ours[attack]:.1f} | {100 * clipped[attack]:.1f} | {paper:.0f} |"
            text += f"{row} {sure:.1%} |\n"
            print(row, f"{sure:.1%}", flush=True)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
