//! Options on what of live memory is listed, as they are typed.

use std::time::Duration;

use clap::{Args, ColorChoice};

use super::{heading, parse_duration};
use gpuprobe_os::color;
use gpuprobe_report::{GroupBy, SortBy, View};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(super) struct ViewArgs {
    /// Group live allocations [default: gpu host-wide, else stack].
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "stack")]
    group: Option<GroupBy>,

    /// Show at most N frames of each call stack.
    #[arg(long, value_name = "N", help_heading = heading::STACKS)]
    depth: Option<usize>,

    /// Show every frame: those inside CUDA's libraries too, and native ones beside Python.
    #[arg(long, help_heading = heading::STACKS)]
    full_stacks: bool,

    /// Show the call stack of each call site, in text; so do the two options above.
    #[arg(long, help_heading = heading::STACKS)]
    stacks_shown: bool,

    /// Show names of kernels whole, in lines of any length, in text.
    #[arg(long)]
    full_names: bool,

    /// Show everything about call site N, or TN for one of tensors, in text.
    #[arg(long, value_name = "N", value_parser = parse_site)]
    site: Option<SiteNumber>,

    /// List single allocations, in text.
    #[arg(long)]
    allocations: bool,

    /// List only allocations of at least this age: 30s, 5m.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    older_than: Option<Duration>,

    /// List only allocations of at least this size: 4096, 64KiB, 2M.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    min_size: Option<u64>,

    /// Sort order of call sites and allocations.
    #[arg(long, value_enum, value_name = "BY", default_value_t)]
    sort: SortBy,
}

impl ViewArgs {
    pub(super) fn view(&self) -> View {
        let (site, tensor_site) = match self.site {
            Some(SiteNumber::Cuda(number)) => (Some(number), None),
            Some(SiteNumber::Tensors(number)) => (None, Some(number)),
            None => (None, None),
        };
        View {
            group: self.group,
            depth: self.depth,
            older_than: self.older_than,
            min_bytes: self.min_size,
            sort: self.sort,
            full_stacks: self.full_stacks,
            // Whoever asks for frames wants to see them.
            stacks_shown: self.stacks_shown || self.full_stacks || self.depth.is_some(),
            full_names: self.full_names,
            site,
            tensor_site,
            allocations: self.allocations,
        }
    }
}

/// When text has colours.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(super) struct ColorArgs {
    /// Colour text: auto, always or never.
    ///
    /// By default, on a terminal, unless `NO_COLOR` is set or `TERM` is dumb.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    color: ColorChoice,
}

impl ColorArgs {
    pub(super) fn choice(&self) -> color::ColorChoice {
        match self.color {
            ColorChoice::Auto => color::ColorChoice::Auto,
            ColorChoice::Always => color::ColorChoice::Always,
            ColorChoice::Never => color::ColorChoice::Never,
        }
    }
}

/// A call site, as reports number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SiteNumber {
    /// Where CUDA was called.
    Cuda(u32),
    /// Where PyTorch's allocator was.
    Tensors(u32),
}

/// `12`, or `T12`.
fn parse_site(text: &str) -> Result<SiteNumber, String> {
    let of_tensors = text.strip_prefix(['T', 't']);
    let number = of_tensors.unwrap_or(text).parse();
    let number = number.map_err(|_| format!("'{text}' is not a call site; try 12 or T12"))?;
    Ok(match of_tensors {
        Some(_) => SiteNumber::Tensors(number),
        None => SiteNumber::Cuda(number),
    })
}

/// As many rows as there are.
const ALL: usize = usize::MAX;

/// The rows that a list has at most, where there is a default; `None` for all.
pub(super) fn rows(asked: Option<usize>, default: Option<usize>) -> Option<usize> {
    asked.or(default).filter(|&rows| rows != ALL)
}

/// A number of rows, or `all`.
pub(super) fn parse_top(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(ALL),
        _ => text
            .parse()
            .map_err(|_| format!("'{text}' is not a number of rows; try 20 or all")),
    }
}

/// Bytes, with a binary unit or without.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; try 4096, 64KiB or 2M");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[number.len()..].to_ascii_lowercase();
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number = number.trim_end();
    if let Ok(whole) = number.parse::<u64>() {
        let bytes = whole.checked_mul(1 << shift);
        return bytes.ok_or_else(|| format!("'{text}' is out of range"));
    }
    let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number: f64 = number.parse().map_err(|_| wrong())?;
    if !plain || !number.is_finite() {
        return Err(wrong());
    }
    Ok((number * (1u64 << shift) as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_rows() {
        let of = |text| parse_top(text).map(|top| rows(Some(top), Some(10)));
        assert_eq!(of("all"), Ok(None));
        assert_eq!(of("3"), Ok(Some(3)));
        assert_eq!(of("0"), Ok(Some(0)));
        assert_eq!(rows(None, Some(10)), Some(10));
        for bad in ["", "-1", "some", "ALL"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        let parse = |text| parse_size(text).ok();
        assert_eq!(parse("4096"), Some(4096));
        assert_eq!(parse("64KiB"), Some(65_536));
        assert_eq!(parse("2M"), Some(2 << 20));
        assert_eq!(parse("1.5 GiB"), Some(3 << 29));
        assert_eq!(parse("18446744073709551615"), Some(u64::MAX));
        for bad in ["", "M", "-1", "4 apples", "1e9", "inf", "nan", "20000000T"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
