"""Tables of text keep their width and lose nothing."""

from hypothesis import given
from hypothesis import strategies as st

from reports.text import paragraph, said_once, side_by_side, text_table

WORDS = st.text(st.sampled_from("abc -±"), min_size=1, max_size=14).map(str.strip).filter(bool)
TABLES = st.integers(2, 6).flatmap(
    lambda n: st.lists(st.lists(WORDS, min_size=n, max_size=n), min_size=2, max_size=5)
)


def test_the_first_column_is_flush_left_and_numbers_flush_right():
    assert text_table(["method", "a b"], [["x", "1.0"], ["yy", "12.0"]]) == (
        "method   a b\n────────────\nx        1.0\nyy      12.0\n"
    )


def test_headings_are_folded_only_where_that_makes_room():
    assert text_table(["m", "Holm p"], [["x", "1.000"]]).splitlines()[0] == "m  Holm p"
    assert text_table(["m", "Holm p"], [["x", "1.000"]], width=8).splitlines()[:2] == ["    Holm", "m      p"]
    assert text_table(["m", "Score\ngap"], [["x", "1"]]).splitlines()[:2] == ["   Score", "m    gap"]


def test_a_long_first_column_is_folded_and_numbers_never_are():
    shown = text_table(["method", "interval"], [["strategies and skills", "[-16.0, -0.3]"]], width=26)
    assert "[-16.0, -0.3]" in shown
    assert max(map(len, shown.splitlines())) == 26
    wider = text_table(["m", "interval"], [["x", "[-16.0, -0.3]"]], width=9)
    assert "[-16.0, -0.3]" in wider, "a table that cannot fit is wider, and whole"


@given(TABLES)
def test_no_cell_is_lost(table):
    header, *rows = table
    shown = text_table(header, rows, width=40).replace("─", "").split()
    assert sorted("".join(shown)) == sorted("".join("".join(table_row) for table_row in table).replace(" ", ""))


def test_columns_that_are_all_the_same_are_said_once_where_room_is_short():
    header, rows = ["a", "design", "p"], [["x", "crossed", "1"], ["y", "crossed", "0"]]
    assert said_once(header, rows, ["design"], width=20) == (header, rows, "")
    assert said_once(header, rows, ["design"], width=10) == (
        ["a", "p"],
        [["x", "1"], ["y", "0"]],
        "In every row: design crossed.",
    )
    rows[1][1] = "tasks"
    assert said_once(header, rows, ["design"], width=10) == (header, rows, "")
    assert said_once(header, rows[:1], ["design"], width=10)[2] == "Design crossed."


def test_wide_tables_are_cut_between_groups_and_keep_their_first_column():
    header, rows = ["m", "a1", "a2", "b1", "b2"], [["x", "1", "2", "3", "4"]]
    assert side_by_side(header, rows, [2, 2], width=80) == [(header, rows)]
    assert side_by_side(header, rows, [2, 2], width=10) == [
        (["m", "a1", "a2"], [["x", "1", "2"]]),
        (["m", "b1", "b2"], [["x", "3", "4"]]),
    ]
    assert len(side_by_side(header, rows, [4], width=5)) == 1, "a group stays together"


def test_a_path_is_never_broken():
    path = "runs/" + "x" * 90
    assert path in paragraph(f"Runs: {path}.")
