"""Dropout that is put into a network without any."""

from torch import nn

from ukemi.uncertainty import dropouts_of, insert_dropout


class Sparing(nn.Linear):
    """Holds something of its own under the name of a dropout."""

    def __init__(self) -> None:
        super().__init__(16, 4)
        self.dropout = nn.Identity()


def test_inserted_dropout_takes_nobodys_place() -> None:
    changed = insert_dropout(nn.Sequential(nn.Flatten(), Sparing()), 0.4)
    assert isinstance(changed[1].dropout, nn.Identity) and [layer.p for layer in dropouts_of(changed)] == [0.4]  # type: ignore[index]
