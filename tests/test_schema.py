"""Numbers, sentences and TOML."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ukemi.errors import UserError
from ukemi.schema import Schema, number, read_config, toml
from ukemi.spaces import Gene
from ukemi.training import TrainConfig

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


def test_a_list_is_called_a_list_and_a_table_a_table() -> None:
    class Some(Schema):
        names: tuple[str, ...] = ()
        ages: dict[str, int] = {}
        genes: tuple[Gene, ...] = ()

    for field, value, said in (
        ("names", "one", "names: should be a list, but 'one' was given"),
        ("ages", "one", "ages: should be a table, but 'one' was given"),
        ("genes", (3,), "genes.0: should be a table, but 3 was given"),
    ):
        with pytest.raises(UserError, match=said):
            Some(**{field: value})
    with pytest.raises(UserError, match="objective: should be a table, but 3 was given"):
        TrainConfig(objective=3)


def test_a_file_may_begin_with_the_mark_of_some_editors(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("batch-size = 3\n", encoding="utf-8-sig")
    assert read_config(path) == {"batch_size": 3}


def test_a_setting_that_stands_there_in_both_writings_is_named(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[train]\nbatch-size = 3\nbatch_size = 4\n")
    with pytest.raises(UserError, match="config: batch-size stands there twice, with - and with _"):
        read_config(path)


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
