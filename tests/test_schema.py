"""Numbers, sentences and TOML."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ukemi.errors import UserError
from ukemi.schema import Schema, number, toml

PLAIN = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.text(max_size=8))
TABLES = st.dictionaries(
    st.text(min_size=1, max_size=6),
    st.one_of(
        PLAIN,
        st.lists(PLAIN, max_size=3),
        st.dictionaries(st.text(min_size=1, max_size=6), PLAIN, max_size=3),
        st.lists(
            st.dictionaries(st.text(min_size=1, max_size=6), PLAIN, min_size=1, max_size=2), min_size=1, max_size=2
        ),
    ),
    max_size=4,
)


@given(TABLES)
def test_what_is_written_as_toml_is_read_back(values: dict[str, Any]) -> None:
    kept = {key: value for key, value in values.items() if value != {}}
    assert tomllib.loads(toml(values)) == kept


def test_nothing_is_left_out_but_none() -> None:
    assert tomllib.loads(toml({"a": None, "b": [1, None], "c": {"d": None}, "\x7f": "\x7f"})) == {
        "b": [1],
        "\x7f": "\x7f",
    }


@pytest.mark.parametrize(("text", "value"), [("8/255", 8 / 255), (" 1/2 ", 0.5), ("1e-3", 1e-3), ("-2", -2.0)])
def test_numbers_may_be_fractions(text: str, value: float) -> None:
    assert number(text) == value


@pytest.mark.parametrize("text", ["1/0", "x", "1/2/3", ""])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a number or a fraction"):
        number(text)


def test_a_list_is_called_a_list() -> None:
    class Some(Schema):
        names: tuple[str, ...] = ()

    with pytest.raises(UserError, match="names: should be a list, but 'one' was given"):
        Some(names="one")


def test_a_description_is_one_line_wherever_the_source_breaks_it() -> None:
    class Told(Schema):
        first: int = 1
        """One line; and
        another one."""
        second: int = 2

    class Inherits(Told):
        pass

    for schema in (Told, Inherits):
        said = [field.description for field in schema.model_fields.values()]
        assert said == ["One line; and another one.", None]
