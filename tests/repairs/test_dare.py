"""DARE from a run to a run: its parts share no image, its variants move what they may, and what is wrong is said."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ukemi import UserError
from ukemi.attacks.config import AttackConfig
from ukemi.measures import accuracy
from ukemi.measures.attacks import under_attack
from ukemi.repairs import Dare, LimitMissed, Mined, dare, ground, ground_of, mine
from ukemi.repairs.dare import _some
from ukemi.repairs.more import read_about
from ukemi.repairs.tuning import mean_loss, regression, target_layer
from ukemi.repairs.twins import joined, saved, twins_of
from ukemi.slicing import slices_of
from ukemi.training import Run, TrainConfig, train
from ukemi.training.checkpoints import read_checkpoint
from ukemi.training.sets import Recorder, write_set
from ukemi.training.setup import load_sets, trained_model

sys.path.insert(0, str(Path(__file__).parent))
from history_net import past_of, some_data

QUICK: dict[str, Any] = {"learning_rates": (1e-4,), "epochs": 1}


def trained(out: Path, **more: Any) -> Run:
    usual = {"model": "demo-cnn", "epochs": 4, "batch_size": 250, "history": 3, "validation": 0.2, "device": "cpu"}
    return train(TrainConfig(**{**usual, **more, "out": out}), quiet=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("dare") / "run")


def weights(run: Run) -> dict[str, Tensor]:
    return read_checkpoint(run.weights_path).tensors


def moved(before: Run, after: Run) -> set[str]:
    old, new = weights(before), weights(after)
    assert old.keys() == new.keys()
    return {name for name in old if not torch.equal(old[name], new[name])}


def test_train_mine_and_select_share_no_image(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ground_of(made)
    parts = [set(part.index.tolist()) for part in (found.train, found.mining, found.selection)]
    assert [len(part) for part in parts] == [4800, 1080, 120] and len(set.union(*parts)) == 6000
    assert parts[1] | parts[2] == set(found.aside.index.tolist())
    sets = load_sets(Run.config_of(made.folder))
    assert parts[0] == set(sets.train.index.tolist())
    monkeypatch.setattr(ground, "SELECTION", 300)
    assert len(ground_of(made).selection) == 300  # at most a quarter
    monkeypatch.setattr(ground, "SELECTION", 301)
    assert len(ground_of(made).selection) == 120  # else a tenth


@pytest.mark.parametrize("variant", ["dare", "dare-s", "dare-sl", "rand", "dare-adv"])
def test_each_variant_moves_only_what_it_may(variant: Any, made: Run, tmp_path: Path) -> None:
    told = Dare(variant=variant, samples=200, **QUICK)
    done = dare(made, told, out=tmp_path / "tuned")
    layers = [f"network.{at}.weight" for at in (0, 3, 6, 10)]
    assert moved(made, done.run) == set(layers if variant == "dare-sl" else layers[:-1])
    config = Run.config_of(done.run.folder)
    assert (config.data, config.model, config.validation) == ("fashion-mini", "demo-cnn", 0.2)
    model, test = trained_model(done.run, config, load_sets(config).test)
    assert accuracy(model, test, torch.device("cpu"))[0] > 0.5
    assert done.samples == 200 and (done.key_synapses == 1) == (variant in ("dare-s", "dare-sl"))
    assert (len(done.mined) == 1080) == (variant == "rand")
    about = read_about(done.run)
    assert about["settings"]["variant"] == variant and about["mined"] == len(done.mined)
    assert set(about["seconds"]) == {"mining", "slicing", "tuning"} and about["target_layer"] == "network.6"
    log = done.run.read_log()
    assert [line["epoch"] for line in log] == [0] and log[0]["validation_accuracy"] == about["accuracy_after"]


def test_one_layer_is_enough_for_the_variant_that_regresses_to_none(made: Run, tmp_path: Path) -> None:
    found, model = ground_of(made), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).eval()
    single = replace(found, model=model, history=past_of(model, 3, 0.02))
    done = dare(made, Dare(variant="dare-sl", allowed_drop=1, **QUICK), out=tmp_path / "tuned", ground=single)
    assert not torch.equal(weights(done.run)["1.weight"], model[1].weight)
    with pytest.raises(UserError, match="p: Sequential has one trainable layer and no penultimate one"):
        dare(made, Dare(**QUICK), out=tmp_path / "no", ground=single)


def test_weights_outside_every_slice_keep_their_bits(made: Run, tmp_path: Path) -> None:
    found = ground_of(made)
    slices = slices_of(found.model, found.train, q=10)
    mined = mine(found.model, found.history, found.aside, target_layer(found.model))
    done = dare(made, Dare(q=10, **QUICK), out=tmp_path / "tuned", ground=found, slices=slices, mined=mined)
    old, new = weights(made), weights(done.run)
    assert moved(made, done.run)
    for name in moved(made, done.run):
        owned = torch.stack([slices.mask(name, klass, old[name]) for klass in range(10)]).any(0)
        assert torch.equal(old[name][~owned].view(torch.int32), new[name][~owned].view(torch.int32))
        assert bool((~owned).any()) or name == "network.0.weight"  # one input channel: ten classes own all of it
    tuned = [slices.synapses[f"network.{at}.weight"] for at in (0, 3, 6)]  # not those behind the target
    assert done.key_synapses == sum(int(one.sum()) for one in tuned) / sum(one.numel() for one in tuned)
    assert done.key_neurons == pytest.approx(float(slices.neurons["network.6"].double().mean()))
    narrow = mine(found.model, found.history, found.aside, "network.3")
    with pytest.raises(UserError, match=r"mined: its targets have 32 neurons, but layer network.6 has 64"):
        dare(made, ground=found, mined=narrow, out=tmp_path / "no")
    with pytest.raises(UserError, match="slices: they were made for another model"):
        dare(made, ground=found, slices=replace(slices, model_hash="0"), out=tmp_path / "no")
    again = dare(made, Dare(q=10, **QUICK), out=tmp_path / "again")  # what is handed in changes nothing
    assert not moved(done.run, again.run)


@pytest.fixture(scope="module")
def fooling(made: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Adversarial sets of images that were kept aside, and of test images."""
    folder, found = tmp_path_factory.mktemp("sets"), ground_of(made)
    told = AttackConfig(attack="fgsm", epsilon=0.03)
    paths = {}
    config = Run.config_of(made.folder)
    parts = {"aside": found.aside, "test": trained_model(made, config, load_sets(config).test)[1]}
    for name, data in parts.items():
        few, recorder = data.take(torch.arange(300)), Recorder(told.made())
        under_attack(found.model, few, recorder)
        split = "test" if name == "test" else "train"
        paths[name] = folder / f"{name}.safetensors"
        write_set(paths[name], recorder.set(found.model, few, told, data="fashion-mini", split=split))
    return paths


def test_twins_take_the_gold_standard_of_their_image(made: Run, fooling: dict[str, Path], tmp_path: Path) -> None:
    found = ground_of(made)
    mined = mine(found.model, found.history, found.aside, target_layer(found.model)).among(found.mining)
    twins = saved("twins", [fooling["aside"]], found.model, found.mining)
    assert twins is not None and set(twins.index.tolist()) <= set(found.mining.index.tolist())
    both = joined(mined, twins)
    own = {int(index): at for at, index in enumerate(mined.data.index)}
    known = [int(index) for index in twins.index if int(index) in own]
    assert len(both) == len(mined) + len(known) and both.data.index.tolist()[len(mined) :] == known
    for at, index in enumerate(known, len(mined)):
        assert torch.equal(both.targets[at], mined.targets[own[index]])
        assert both.data.labels[at] == mined.data.labels[own[index]]
    made_here = twins_of(found.model, mined.data.take(torch.arange(20)), 0.05, 0)
    clean = mined.data.batch(torch.arange(20), "cpu").images
    far = (made_here.images[torch.arange(20)] - clean).abs().amax((1, 2, 3))
    assert float(far.max()) <= 0.05 + 1e-6 and float(far.max()) > 0.04
    done = dare(made, Dare(variant="dare-adv", twins=(fooling["aside"],), **QUICK), out=tmp_path / "t", ground=found)
    assert done.samples == len(both)


def test_the_score_is_accuracy_on_adversarial_sets_where_they_are_given(
    made: Run, fooling: dict[str, Path], tmp_path: Path
) -> None:
    found = ground_of(made)
    chosen = saved("select-on", [fooling["aside"]], found.model, found.selection)
    assert chosen is not None and set(chosen.index.tolist()) <= set(found.selection.index.tolist())
    told = Dare(select_on=(fooling["aside"],), learning_rates=(1e-4, 1e-3), epochs=1)
    done = dare(made, told, out=tmp_path / "tuned", ground=found)
    model, _ = trained_model(done.run, Run.config_of(done.run.folder), found.selection)
    assert done.tuned.best is not None
    assert accuracy(model, chosen, torch.device("cpu"))[0] == done.tuned.best.score
    assert done.tuned.best.score == max(one.score for one in done.tuned.trials if one.allowed)


def test_without_sets_the_lowest_loss_on_the_mined_selection_images_decides(made: Run, tmp_path: Path) -> None:
    found = ground_of(made)
    layer = target_layer(found.model)
    mined, slices = mine(found.model, found.history, found.aside, layer), slices_of(found.model, found.train, q=30)
    told = Dare(q=30, learning_rates=(1e-6, 1e-3), epochs=2, samples=300)
    done = dare(made, told, out=tmp_path / "tuned", ground=found, mined=mined, slices=slices)
    model, _ = trained_model(done.run, Run.config_of(done.run.folder), found.selection)
    loss = mean_loss(model.eval(), mined.among(found.selection), regression(layer, slices))
    assert done.tuned.best is not None and done.tuned.best.score == pytest.approx(-loss)
    assert done.tuned.best.score == max(one.score for one in done.tuned.trials if one.allowed)
    assert loss < mean_loss(found.model, mined.among(found.selection), regression(layer, slices))


def test_fewer_samples_are_a_choice_by_seed_and_identity() -> None:
    data, none = some_data(60), torch.zeros(60)
    index = torch.arange(60) % 30  # each image and its twin
    whole = Mined(replace(data, index=index), torch.rand(60, 2), none.long(), none.double(), none.double(), 60)
    some, others = _some(whole, 20, 0), _some(whole, 20, 1)
    chosen = some.data.index.unique()
    assert len(some) == 20 and len(chosen) == 10 and not torch.equal(chosen, others.data.index.unique())
    assert torch.equal(some.targets, whole.targets[torch.isin(index, chosen)])  # in the order of the data
    turned = _some(whole.take(torch.arange(59, -1, -1)), 20, 0)
    assert torch.equal(turned.targets.flip(0), some.targets)
    assert len(_some(whole, None, 0)) == len(_some(whole, 99, 0)) == 60


def test_a_set_without_an_image_in_need_says_how_to_make_one(made: Run, fooling: dict[str, Path]) -> None:
    found = ground_of(made)
    others = found.aside.take(torch.arange(300, 305))  # the set has the first 300
    with pytest.raises(UserError, match=r"twins: .* no image among the 5 .*; attack all of the train part, or some by"):
        saved("twins", [fooling["aside"]], found.model, others)


def test_sets_of_test_images_are_refused(made: Run, fooling: dict[str, Path], tmp_path: Path) -> None:
    for more in ({"select_on": (fooling["test"],)}, {"variant": "dare-adv", "twins": (fooling["test"],)}):
        with pytest.raises(UserError, match=r"^(select-on|twins): .* was made from the test part"):
            dare(made, Dare(**more, **QUICK), out=tmp_path / "tuned")
    with pytest.raises(UserError, match="twins belong to the variant dare-adv, but the variant is dare"):
        Dare(twins=(fooling["aside"],))
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"variant": "dare-s", "q": 50}, "q: the variant dare-s makes no use of it"),
        ({"variant": "dare-sl", "reading": "set-mean"}, "reading: the variant dare-sl makes no use of it"),
        ({"variant": "dare-sl", "p": 0}, "p: the variant dare-sl makes no use of it"),
        ({"reading": "nnslicer", "q": 50}, "q: the reading nnslicer makes no use of it"),
        ({"variant": "dare-adv", "epsilon": 0.1, "twins": ("a",)}, "epsilon: twins that are given make no use of it"),
    ],
)
def test_settings_without_use_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Dare(**given)
    assert Dare(variant="dare-s", p=0, q=95).p == 0  # a default may be said


def test_slices_that_are_handed_in_are_what_was_asked_for(made: Run, tmp_path: Path) -> None:
    found = ground_of(made)
    few = found.train.take(torch.arange(200))
    of_two = slices_of(found.model, few, classes=[0, 3])
    with pytest.raises(UserError, match="slices: they are of 2 classes, but all 10 tune"):
        dare(made, ground=found, slices=of_two, out=tmp_path / "no")
    whole = slices_of(found.model, few, q=20)
    with pytest.raises(UserError, match=r"slices: they were cut by paper at q = 20, but paper at q = 95 is asked for"):
        dare(made, ground=found, slices=whole, out=tmp_path / "no")
    with pytest.raises(UserError, match=r"slices: they were cut by paper at q = 20, but nnslicer is asked for"):
        dare(made, Dare(reading="nnslicer"), ground=found, slices=whole, out=tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_selection_images_need_not_be_mined_where_others_choose(
    made: Run, fooling: dict[str, Path], tmp_path: Path
) -> None:
    found = ground_of(made)
    mined = mine(found.model, found.history, found.mining, target_layer(found.model))
    told: dict[str, Any] = {"ground": found, "mined": mined}
    with pytest.raises(UserError, match="no historical model knows any of the 120 images better"):
        dare(made, Dare(**QUICK), out=tmp_path / "no", **told)
    assert dare(made, Dare(**QUICK), out=tmp_path / "own", score=lambda model: 1.0, **told).tuned.best
    assert dare(made, Dare(select_on=(fooling["aside"],), **QUICK), out=tmp_path / "set", **told).tuned.best


def test_where_no_run_can_be_written_is_said_before_any_work(
    made: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys.modules["ukemi.repairs.dare"], "ground_of", lambda run: pytest.fail("work was begun"))
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match=r"^out: .*file is a file"):
            dare(made, out=out)


def test_what_cannot_be_sliced_is_said_before_mining(
    made: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ground_of(made)
    gated = torch.nn.Sequential(*found.model.network[:10], torch.nn.LayerNorm(1024), found.model.network[10])
    monkeypatch.setattr(sys.modules["ukemi.repairs.dare"], "mine", lambda *given, **more: pytest.fail("it was mined"))
    with pytest.raises(UserError, match=r"\(LayerNorm\) can't be sliced"):
        dare(made, ground=replace(found, model=gated), out=tmp_path / "no")
    few = replace(found, train=found.train.take((found.train.labels != 4).nonzero().flatten()))
    with pytest.raises(UserError, match="there is no sample of class 'Coat' to slice by"):
        dare(made, ground=few, out=tmp_path / "no")


@pytest.mark.parametrize("variant", ["dare-s", "dare-sl"])
def test_without_slices_a_network_that_cannot_be_traced_is_refused_for_the_true_reason(
    variant: Any, made: Run, tmp_path: Path
) -> None:
    class Looking(torch.nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    found = ground_of(made)
    with pytest.raises(UserError, match=r"traced by torch\.fx, which finds its layers in their order") as error:
        dare(made, Dare(variant=variant), ground=replace(found, model=Looking(found.model)), out=tmp_path / "no")
    assert "slic" not in str(error.value)


def copied(run: Run, folder: Path) -> Run:
    shutil.copytree(run.folder, folder)
    return Run(folder)


def test_what_a_run_lacks_is_said_before_anything_is_written(made: Run, tmp_path: Path) -> None:
    bare = copied(made, tmp_path / "bare")
    text = (bare.folder / "config.toml").read_text()
    (bare.folder / "config.toml").write_text(text.replace("history = 3", "history = 0"))
    with pytest.raises(UserError, match=r"history: .*bare kept none; train with --history half"):
        dare(bare, out=tmp_path / "out")
    (bare.folder / "config.toml").write_text(text.replace("validation = 0.2", "validation = 0"))
    with pytest.raises(UserError, match=r"run: .*bare kept no images aside; train with --validation 0.5"):
        dare(bare, out=tmp_path / "out")
    (bare.folder / "config.toml").write_text(text)
    other = trained(tmp_path / "other", seed=3)
    shutil.rmtree(bare.history)
    shutil.copytree(other.history, bare.history)
    with pytest.raises(UserError, match=r"history: .* belongs to another model"):
        dare(bare, out=tmp_path / "out")
    bare.weights_path.unlink()
    with pytest.raises(UserError, match=r"run: .*bare has no weights yet"):
        dare(bare, out=tmp_path / "out")
    with pytest.raises(UserError, match=r"p: .* has 4 trainable layers, so p should be from 0 to 3, but 4"):
        dare(made, Dare(p=4), out=tmp_path / "out")
    with pytest.raises(UserError, match="already holds a run"):
        dare(made, out=other.folder)
    assert not (tmp_path / "out").exists()


def test_a_class_without_samples_is_named(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_sets(Run.config_of(made.folder))
    assert whole.validation is not None
    few = whole.validation.take((whole.validation.labels != 4).nonzero().flatten())
    monkeypatch.setattr(ground, "load_sets", lambda config: type(whole)(whole.train, few, whole.test))
    with pytest.raises(UserError, match=r"data: class 'Coat' has no sample among the .* images to mine"):
        ground_of(made)


def test_where_every_state_loses_too_much_nothing_is_written(made: Run, tmp_path: Path) -> None:
    with pytest.raises(
        LimitMissed, match=r"every tuned state lost more than 10 points of accuracy on the 120 selection"
    ):
        dare(made, Dare(learning_rates=(5.0,), epochs=1), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
