//! Plain tables: columns as wide as their widest cell, two spaces between them.

/// Lays the rows out under the header; no trailing spaces.
pub fn render(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header.get(column).map_or(0, |name| name.len())]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    line(header.to_vec()) + &body.collect::<String>()
}

/// A duration as people say it: `12s`, `5m`, `3h`, `2d`.
pub fn age(micros: u64, now: std::time::SystemTime) -> String {
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_micros(micros);
    let seconds = now.duration_since(then).map_or(0, |age| age.as_secs());
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() {
        let rows = vec![vec!["a".to_owned(), String::new()], vec!["long".to_owned(), "x".to_owned()]];
        assert_eq!(render(&["ID", "B"], &rows), "ID    B\na\nlong  x\n");
    }

    #[test]
    fn ages_are_short() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let ago = |seconds: u64| age((1_000_000 - seconds) * 1_000_000, now);
        assert_eq!([ago(5), ago(600), ago(8000), ago(200_000)], ["5s", "10m", "2h", "2d"]);
        assert_eq!(age(2_000_000_000_000, now), "0s", "a clock that was set back is no error");
    }
}
