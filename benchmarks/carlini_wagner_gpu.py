"""How long C&W takes over thousands of images: VGG-16 on CIFAR-10, 9 searches of 1,000 steps, early stop.

    python benchmarks/carlini_wagner_gpu.py --data FOLDER --out results/carlini-wagner-gpu.md

Trains the network first (not counted), then attacks test images that it recognises, in batches.
"""

import argparse
import platform
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from lines import told

import ukemi
from ukemi.attacks import carlini_wagner
from ukemi.training import TrainConfig, train
from ukemi.training.setup import load_sets, trained_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--set", default="cifar10")
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=2500)
    parser.add_argument("--searches", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tf32", action="store_true", help="convolutions and products in TF32")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.tf32
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            data=args.set,
            **({"data_folder": args.data} if args.data else {}),
            model=args.model,
            epochs=args.epochs,
            batch_size=512,
            learning_rate=0.05,
            flips=True,
            precision="bfloat16" if torch.cuda.is_available() else "float32",
            validation=0,
            out=Path(folder) / "run",
        )
        began = perf_counter()
        run = train(config, quiet=True)
        print(f"trained in {perf_counter() - began:.0f} s", flush=True)
        device = config.chosen_device()
        model, test = trained_model(run, config, load_sets(config).test)
    model, test = model.to(device).eval(), test.to(device)
    with torch.no_grad():
        known = [
            batch.index[model(batch.images).argmax(1) == batch.labels]
            for batch in test.batches(torch.arange(len(test)).split(1000), device)
        ]
    rows = torch.cat(known).cpu()
    accuracy, rows = len(rows) / len(test), rows[: args.images]
    seconds, passes, found = 0.0, 0, []
    for batch in test.batches(rows.split(args.batch), device):
        began = perf_counter()
        attacked = carlini_wagner(model, batch.images, batch.labels, searches=args.searches, steps=args.steps)
        found.append((attacked.success.cpu(), attacked.distance.cpu()))
        seconds, passes = seconds + perf_counter() - began, passes + int(attacked.forwards.sum())
        print(f"{len(batch.index)} images, {seconds:.0f} s so far", flush=True)
    success, distance = (torch.cat(part) for part in zip(*found, strict=True))
    where = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or "CPU"
    flags = f"--model {args.model} --set {args.set} --epochs {args.epochs} --images {args.images} --batch {args.batch}"
    flags += f" --searches {args.searches} --steps {args.steps}{' --tf32' if args.tf32 else ''}"
    text = f"# C&W over {len(rows):,} images\n\n`python benchmarks/carlini_wagner_gpu.py {flags}` on {where},"
    text += (
        f" ukemi {ukemi.__version__}, torch {torch.__version__}.\n\n{args.model} recognises {accuracy:.1%} of the test"
    )
    text += f" images; {len(rows):,} of these were attacked: **{seconds:.1f} s**, success {success.float().mean():.1%},"
    text += (
        f" median L2 distance {distance[success].median():.3f}, {passes / len(rows):,.0f} forward passes per image\n"
    )
    told(text, args.out)


if __name__ == "__main__":
    main()
