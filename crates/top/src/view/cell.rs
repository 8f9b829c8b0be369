//! Cells of tables: values, of which only those on the screen become text.

use std::borrow::Cow;
use std::cmp::Ordering;

use ratatui_core::style::Color;
use ratatui_core::text::Line;

use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_report::memleak::{LiveByKind, ProcessReport};
use gpuprobe_report::names::simplify;
use gpuprobe_report::verdict_rank;
use gpuprobe_report::words::{short_age, signed_size};

use super::look::{Theme, kinds_bar, spark};
use crate::series::{Figure, FigureSeries};

/// Columns of the bar of kinds.
pub(crate) const BAR: u16 = 10;
/// Columns of the sparkline of a call site.
pub(crate) const SPARK: u16 = 12;
/// Characters of the id of a container that are shown.
const CONTAINER: usize = 12;

/// Sort key of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SortKey {
    Number(f64),
    Text(String),
}

impl SortKey {
    /// Larger numbers and earlier names first.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => b.total_cmp(a),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub(crate) enum GridCell<'a> {
    /// A name, which a traced program may have chosen.
    Name(Cow<'a, str>),
    /// Demangled name of a kernel.
    Kernel(&'a str),
    /// The program of a process.
    Program(&'a ProcessReport),
    /// The user of a process.
    User(&'a ProcessReport),
    /// Id of a container.
    Container(&'a str),
    /// Memory by kind, as a bar.
    Kinds(&'a LiveByKind),
    /// Number of a process, thread or device; smaller ones are first.
    Id(Option<u32>),
    Count(u64),
    Lost(u64),
    Bytes(Option<u64>),
    /// Change of bytes.
    Change(Option<i64>),
    /// Age, nanoseconds.
    Age(u64),
    /// Share, 0 to 1.
    Share(Option<f64>),
    /// Events per second.
    Rate(f64),
    /// Bytes per second.
    Throughput(f64),
    /// Size of a grid or block.
    Volume([u32; 3]),
    /// Curve of a figure, sorted by its last change.
    Curve(Figure, Option<i64>),
    /// Word of a verdict.
    Verdict(&'static str),
}

impl GridCell<'_> {
    /// By what rows are sorted.
    pub(crate) fn key(&self) -> SortKey {
        SortKey::Number(match self {
            Self::Name(_)
            | Self::Kernel(_)
            | Self::Program(_)
            | Self::User(_)
            | Self::Container(_) => return SortKey::Text(self.text().to_lowercase()),
            Self::Kinds(kinds) => {
                let theme = Theme { colored: false };
                return SortKey::Text(bar(kinds, theme).to_string());
            }
            Self::Id(id) => id.map_or(f64::NEG_INFINITY, |id| -f64::from(id)),
            Self::Count(number) | Self::Lost(number) | Self::Age(number) => *number as f64,
            Self::Bytes(bytes) => bytes.map_or(f64::NEG_INFINITY, |bytes| bytes as f64),
            Self::Change(change) | Self::Curve(_, change) => {
                change.map_or(f64::NEG_INFINITY, |change| change as f64)
            }
            Self::Share(share) => share.unwrap_or(f64::NEG_INFINITY),
            Self::Rate(rate) | Self::Throughput(rate) => *rate,
            Self::Volume(sizes) => sizes.map(f64::from).iter().product(),
            Self::Verdict(word) => -(verdict_rank(word) as f64),
        })
    }

    /// The text, without colours; empty for a curve.
    pub(crate) fn text(&self) -> String {
        let optional = |text: Option<String>| text.unwrap_or_default();
        match self {
            Self::Name(name) => printable(name),
            Self::Kernel(name) => printable(&simplify(name)),
            Self::Program(process) => match process.exited {
                true => format!("{} (ended)", process.who().program()),
                false => process.who().program(),
            },
            Self::User(process) => process.who().user(),
            Self::Container(id) => printable(id.get(..CONTAINER).unwrap_or(id)),
            Self::Kinds(kinds) => bar(kinds, Theme { colored: false }).to_string(),
            Self::Id(id) => optional(id.map(|id| id.to_string())),
            Self::Count(number) => number.to_string(),
            Self::Lost(0) => String::new(),
            Self::Lost(number) => number.to_string(),
            Self::Bytes(bytes) => optional(bytes.map(size)),
            Self::Change(change) => optional(change.map(signed_size)),
            Self::Age(ns) => short_age(*ns),
            Self::Share(share) => optional(share.map(|share| format!("{:.1}", share * 100.0))),
            Self::Rate(0.0) | Self::Throughput(0.0) | Self::Curve(..) => String::new(),
            Self::Rate(rate @ ..10.0) => format!("{rate:.1}"),
            Self::Rate(rate) => format!("{rate:.0}"),
            Self::Throughput(rate) => format!("{:.3}", rate / 1e9),
            Self::Volume([x, y, z]) => format!("{x}x{y}x{z}"),
            Self::Verdict(word) => (*word).to_owned(),
        }
    }

    /// The cell as it is drawn.
    pub(crate) fn line(&self, series: &FigureSeries, theme: Theme) -> Line<'static> {
        match self {
            Self::Kinds(kinds) => bar(kinds, theme),
            Self::Curve(figure, _) => {
                let values = series.values(*figure, usize::from(SPARK));
                let most = values.iter().flatten().max().copied().unwrap_or(0);
                Line::styled(spark(&values, most), theme.color(Color::Cyan))
            }
            Self::Verdict(word) => Line::styled(*word, theme.verdict(word)),
            Self::Lost(1..) => Line::styled(self.text(), theme.tone(Tone::Bad)),
            _ => Line::from(self.text()),
        }
    }
}

fn bar(kinds: &LiveByKind, theme: Theme) -> Line<'static> {
    let kinds = kinds.0.iter().map(|(kind, sum)| (*kind, sum.bytes));
    kinds_bar(kinds, usize::from(BAR), theme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_are_unknown_or_nothing_are_empty_and_come_last() {
        for cell in [
            GridCell::Bytes(None),
            GridCell::Change(None),
            GridCell::Share(None),
            GridCell::Id(None),
        ] {
            assert_eq!(cell.text(), "");
            assert_eq!(cell.key(), SortKey::Number(f64::NEG_INFINITY));
        }
        for cell in [
            GridCell::Rate(0.0),
            GridCell::Throughput(0.0),
            GridCell::Lost(0),
        ] {
            assert_eq!(cell.text(), "");
        }
        assert_eq!(GridCell::Rate(9.96).text(), "10.0");
        assert_eq!(GridCell::Rate(590.4).text(), "590");
        assert_eq!(GridCell::Throughput(84e6).text(), "0.084");
        // The widest size, for which columns have room.
        assert_eq!(
            GridCell::Bytes(Some((1 << 30) - 8192)).text(),
            "1023.99 MiB"
        );
    }

    #[test]
    fn rows_are_ordered_by_value() {
        let order = |a: &GridCell<'_>, b: &GridCell<'_>| a.key().order(&b.key());
        let ids = (GridCell::Id(Some(9)), GridCell::Id(Some(10)));
        assert_eq!(order(&ids.0, &ids.1), Ordering::Less);
        let bytes = (GridCell::Bytes(Some(9)), GridCell::Bytes(Some(10)));
        assert_eq!(order(&bytes.0, &bytes.1), Ordering::Greater);
        let names = (GridCell::Name("b".into()), GridCell::Name("A".into()));
        assert_eq!(order(&names.0, &names.1), Ordering::Greater);
        let verdicts = (GridCell::Verdict("growing"), GridCell::Verdict("plateau"));
        assert_eq!(order(&verdicts.0, &verdicts.1), Ordering::Less);
    }
}
