"""The one error that a user's mistake raises."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches


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


def meant(given: str, known: Sequence[str]) -> str | None:
    """The name that was shortened, or else the one that is spelt nearly so.

    >>> meant("eps", ["steps", "epsilon"]), meant("lr", ["drops", "learning-rate"]), meant("epoch", ["epochs"])
    ('epsilon', 'learning-rate', 'epochs')
    """
    letters = {one: "".join(word[:1] for word in re.split("[-_]", one)) for one in known}
    short = [one for one in known if len(given) > 1 and (one.startswith(given) or letters[one] == given)]
    return next(iter(short or get_close_matches(given, known, 1, 0.7)), None)
