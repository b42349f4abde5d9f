//! Tables as comma-separated values (RFC 4180), for use in other programs.

/// Returns the text of a table: the heads, then the rows.
pub(crate) fn text(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = line(heads.iter().map(|head| (*head).to_owned()));
    for row in rows {
        text.push_str(&line(row));
    }
    text
}

/// Formats a number. An unknown number is an empty cell.
pub(crate) fn figure(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Returns a line with its end. Cells with special characters are quoted.
fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cell = |cell: String| {
        // RFC 4180 section 2, 6 and 7.
        if cell.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
    };
    let cells: Vec<_> = cells.into_iter().map(cell).collect();
    format!("{}\r\n", cells.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_special_characters_are_quoted() {
        let rows = [vec!["a, b".to_owned(), "say \"x\"".to_owned()], vec![figure(Some(1.5)), figure(None)]];
        assert_eq!(text(&["name", "n"], rows), "name,n\r\n\"a, b\",\"say \"\"x\"\"\"\r\n1.5,\r\n");
    }
}
