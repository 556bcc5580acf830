use super::Table;

#[test]
fn columns_are_as_wide_as_their_widest_cell_and_lines_have_no_tail() {
    let mut table = Table::new(["USER", "USAGE", "FROM"], &["USAGE"]);
    table.row(["alice".into(), "7.0 MiB".into(), "state".into()]);
    table.row(["jérôme".into(), "1 byte".into(), String::new()]);
    let expected = "\
USER      USAGE  FROM
alice   7.0 MiB  state
jérôme   1 byte
";
    assert_eq!(table.to_string(), expected);
}
