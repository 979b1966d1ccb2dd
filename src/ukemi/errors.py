"""The one error that a user's mistake raises."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """A mistake in what was given: one sentence that names the field and what is allowed. The CLI exits with 2.

    Not a ValueError: validators turn those into reports of their own, and this sentence should arrive as it is.
    """


@contextmanager
def field_called(name: str, *others: str) -> Iterator[None]:
    """Mistakes that are about one of the fields `others` are about `name` instead: what the user has typed."""
    try:
        yield
    except UserError as error:
        field, colon, rest = str(error).partition(":")
        if not colon or field not in others:
            raise
        raise type(error)(f"{name}:{rest}") from None


def check_known(field: str, given: object, known: Collection[str]) -> None:
    """Refuses a name that is none of the known ones."""
    if given not in list(known):  # a list: what was given may have no hash
        raise UserError(f"{field}: {given!r} is none of {', '.join(known)}.")
