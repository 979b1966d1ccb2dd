"""The one error that a user's mistake raises."""


class UserError(Exception):
    """A mistake in what was given: one sentence that names the field and what is allowed. The CLI exits with 2.

    Not a ValueError: validators turn those into reports of their own, and this sentence should arrive as it is.
    """
