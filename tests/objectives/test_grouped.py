"""Mixing within one group of a batch."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ukemi import UserError
from ukemi.objectives import Distillation, GroupedMixup
from ukemi.objectives.grouped import Partners, partners_of
from ukemi.objectives.mixup import drawn


@given(group=st.lists(st.booleans(), min_size=1, max_size=30), seed=st.integers(0, 1000))
def test_partners_within_the_group_are_a_permutation_of_it(group: list[bool], seed: int) -> None:
    order = torch.randperm(len(group), generator=torch.Generator().manual_seed(seed))
    members = torch.tensor(group)
    other = partners_of(members, order, "group")
    assert sorted(other.tolist()) == list(range(len(group)))
    assert members[other].equal(members)


@given(group=st.lists(st.booleans(), min_size=1, max_size=30), seed=st.integers(0, 1000))
def test_partners_among_the_others_are_outside_and_evenly_used(group: list[bool], seed: int) -> None:
    order = torch.randperm(len(group), generator=torch.Generator().manual_seed(seed))
    members = torch.tensor(group)
    other = partners_of(members, order, "others")[members]
    if not all(group):
        assert not bool(members[other].any())
        used = torch.bincount(other, minlength=len(group))[~members]
        assert int(used.max()) - int(used.min()) <= 1


def test_partners_change_with_the_order() -> None:
    members = torch.arange(64) >= 32
    drawn = {tuple(partners_of(members, torch.randperm(64), "group").tolist()) for _ in range(5)}
    assert len(drawn) == 5


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_unmixed_samples_are_trained_as_they_are_and_the_group_is_mixed(kind: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    objective = GroupedMixup(first=100)
    objective.attach(net)
    objective.kind = kind
    images, labels = torch.rand(12, 1, 4, 4), torch.arange(12) % 3
    index = torch.arange(94, 106)
    found = objective(net, images, labels, index, 0)
    plain = F.cross_entropy(net(images), labels, reduction="none")
    assert torch.allclose(found.losses[:6], plain[:6], atol=1e-6)
    assert not bool(torch.isclose(found.losses[6:], plain[6:], atol=1e-6).all())


@pytest.mark.parametrize("partners", ["group", "others"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_images_and_labels_are_mixed_in_one_proportion(partners: Partners, smoothing: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).requires_grad_(False)
    images, labels, index = torch.rand(8, 1, 4, 4), torch.arange(8) % 3, torch.arange(8)
    torch.manual_seed(1)
    share, order = drawn(2.0, images)
    other = partners_of(index >= 4, order, partners)
    torch.manual_seed(1)
    found = GroupedMixup(smoothing, first=4, partners=partners)(net, images, labels, index, 0)
    assert any(labels[at] != labels[other[at]] for at in range(4, 8))
    for at in range(8):
        own = float(share) if at >= 4 else 1.0
        pair = [at, int(other[at])]
        answer = net(own * images[pair[:1]] + (1 - own) * images[pair[1:]])
        first, second = (F.cross_entropy(answer, labels[[row]], label_smoothing=smoothing) for row in pair)
        assert torch.isclose(found.losses[at], own * first + (1 - own) * second, atol=1e-5)


def test_the_group_begins_with_the_sample_that_is_named() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    images, labels = torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 2])
    found = GroupedMixup(first=100, partners="others")(net, images, labels, torch.tensor([98, 99, 100]), 0)
    plain = F.cross_entropy(net(images), labels, reduction="none")
    assert torch.isclose(found.losses, plain, atol=1e-6).tolist() == [True, True, False]


def test_a_group_of_one_is_left_alone() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    objective = GroupedMixup(first=3)
    images, labels = torch.rand(4, 1, 4, 4), torch.tensor([0, 1, 2, 0])
    found = objective(net, images, labels, torch.arange(4), 0)
    assert torch.allclose(found.losses, F.cross_entropy(net(images), labels, reduction="none"), atol=1e-6)


def test_distillation_divides_by_its_temperature_and_learns_a_teachers_answers(tmp_path: object) -> None:
    from safetensors.torch import save_file

    torch.manual_seed(0)
    net, teacher = (nn.Sequential(nn.Flatten(), nn.Linear(16, 3)) for _ in range(2))
    images, labels = torch.rand(5, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1])
    found = Distillation(temperature=4.0)(net, images, labels, labels, 0)
    assert torch.allclose(found.losses, F.cross_entropy(net(images) / 4, labels, reduction="none"))
    file = f"{tmp_path}/teacher.safetensors"
    save_file(teacher.state_dict(), file)
    student = Distillation(temperature=4.0, teacher=file)
    with pytest.raises(UserError, match="attach"):
        student(net, images, labels, labels, 0)
    student.attach(net)
    taught = student(net, images, labels, labels, 0)
    answers = (teacher(images) / 4).softmax(1)
    assert torch.allclose(taught.losses, -(answers * (net(images) / 4).log_softmax(1)).sum(1), atol=1e-5)
    taught.losses.mean().backward()
    assert net[1].weight.grad is not None  # the gradient flows into the student
    with pytest.raises(UserError, match="temperature"):
        Distillation(temperature=0)
