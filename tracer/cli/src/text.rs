//! Text for people: where it goes, colours, tables, and numbers in units that fit.

use std::io::{self, BufWriter, Stdout, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::args::Color;

/// Tables are at least this wide, on the narrowest terminal; where nobody looks, nothing is shortened.
const WIDTH_MIN: usize = 100;

/// The last column of a table has at least this much room.
const LAST_MIN: usize = 40;

/// Standard output.
pub(crate) struct Out {
    to: BufWriter<Stdout>,
    colors: bool,
    width: usize,
}

impl Out {
    pub fn stdout(color: Color) -> Out {
        let colors = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => AutoStream::choice(&io::stdout()) != ColorChoice::Never,
        };
        let wide = terminal_size::terminal_size_of(io::stdout()).map_or(usize::MAX, |(width, _)| usize::from(width.0));
        Out { to: BufWriter::with_capacity(64 << 10, io::stdout()), colors, width: wide.max(WIDTH_MIN) }
    }

    /// Text in this style, if there are colours.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if self.colors && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// A line above what follows.
    pub fn title(&mut self, title: &str) -> io::Result<()> {
        let title = self.paint(BOLD, title);
        writeln!(self, "\n{title}")
    }

    /// A line of lesser weight.
    pub fn aside(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint(DIM, text);
        writeln!(self, "  {text}")
    }

    /// A value as JSON, and a new line.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *self, value)?;
        writeln!(self)
    }

    /// A value as JSON in one line.
    pub fn json_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self, value)?;
        writeln!(self)
    }
}

impl Write for Out {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.to.write(buf)
    }

    // A line is written in many pieces.
    #[inline]
    fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
        self.to.write_all(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Nanoseconds in the unit that fits: `1.23 ms`.
pub(crate) fn time(ns: impl TryInto<u128>) -> String {
    let ns = ns.try_into().unwrap_or(u128::MAX);
    let (unit, divisor) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..999_500 => ("us", 1e3),
        999_500..999_500_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let value = ns as f64 / divisor;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {unit}")
}

/// The same for a table, in which nothing should look like nothing.
pub(crate) fn time_cell(ns: u128) -> String {
    if ns == 0 { "-".into() } else { time(ns) }
}

/// A number with its digits in threes: `1,234,567`.
pub(crate) fn number(n: impl TryInto<u64>) -> String {
    let digits = n.try_into().unwrap_or(u64::MAX).to_string();
    let threes: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|d| std::str::from_utf8(d).ok()).collect();
    threes.join(",")
}

/// `1 wait`, `2 waits`
pub(crate) fn plural(n: u64, one: &str) -> String {
    format!("{} {one}{}", number(n), if n == 1 { "" } else { "s" })
}

/// A size: `12.3 MB`.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{} B", number(n)),
        10_000..10_000_000 => format!("{} KB", number(n / 1000)),
        _ => format!("{} MB", number(n / 1_000_000)),
    }
}

pub(crate) fn percent(part: u128, whole: u128) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

/// How the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Left,
    Right,
}

/// Rows of cells under a head.
pub(crate) struct Table {
    head: Vec<(&'static str, Column)>,
    rows: Vec<(Style, Vec<String>)>,
    indent: usize,
}

impl Table {
    pub fn new(head: &[(&'static str, Column)]) -> Table {
        Table { head: head.to_vec(), rows: Vec::new(), indent: 2 }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.styled(Style::new(), cells);
    }

    pub fn styled(&mut self, style: Style, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.head.len());
        self.rows.push((style, cells));
    }

    pub fn print(&self, out: &mut Out) -> io::Result<()> {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|i| {
                let cells = self.rows.iter().map(|(_, row)| row[i].chars().count());
                cells.chain([self.head[i].0.chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let head = self.head.iter().map(|(head, _)| head.to_string()).collect();
        let lines = [(DIM, &head)].into_iter().chain(self.rows.iter().map(|(style, row)| (*style, row)));
        for (style, row) in lines.skip(usize::from(self.head.iter().all(|(head, _)| head.is_empty()))) {
            let mut line = " ".repeat(self.indent);
            let mut used = self.indent;
            for (i, cell) in row.iter().enumerate() {
                let (width, last) = (widths[i], i + 1 == row.len());
                let room = if last { out.width.saturating_sub(used).max(LAST_MIN) } else { usize::MAX };
                let cell = shorten(cell, room);
                line += &match self.head[i].1 {
                    Column::Left => format!("{cell:<width$}"),
                    Column::Right => format!("{cell:>width$}"),
                };
                line += "  ";
                used += width + 2;
            }
            let line = out.paint(style, line.trim_end());
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// Text of at most so many characters: what is too much is left out in the middle, as both ends of a path tell more.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let (head, tail) = ((max - 1) / 3, max - 1 - (max - 1) / 3);
    let chars: Vec<char> = text.chars().collect();
    chars[..head].iter().chain(&['…']).chain(&chars[count - tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let times = [0u64, 999, 1_000, 12_345, 999_499, 999_999, 1_500_000, 61_000_000_000].map(time);
        assert_eq!(times, ["0 ns", "999 ns", "1.00 us", "12.3 us", "999 us", "1.00 ms", "1.50 ms", "61.0 s"]);
        assert_eq!([0u64, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((percent(1, 3), percent(1, 0)), ("33.3%".into(), "-".into()));
        assert_eq!((plural(1, "wait"), plural(2_000, "wait")), ("1 wait".into(), "2,000 waits".into()));
    }

    #[test]
    fn long_text_keeps_its_ends() {
        assert_eq!(shorten("abcdefghij", 10), "abcdefghij");
        assert_eq!(shorten("abcdefghijk", 10), "abc…fghijk");
    }
}
