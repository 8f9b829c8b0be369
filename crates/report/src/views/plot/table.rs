//! Usage reports that were made earlier, in any format.

use std::path::Path;

use anyhow::{Result, bail};

use super::{Chart, Steps};

/// The chart of a report by `gpuprobe report --analysis usage`.
pub(super) fn chart(text: &str, path: &Path) -> Result<Chart> {
    let labels = ["with call stack", "without call stack", "driver"].map(str::to_owned);
    let mut steps = Steps::new(labels.len());
    let mut peak: Option<(f64, f64)> = None;
    let mut last = 0;
    for numbers in text.lines().filter_map(numbers) {
        let [time, total, parts @ ..] = numbers;
        steps.set(&parts.map(|bytes| u64::try_from(bytes).unwrap_or(0)));
        steps.mark(time);
        if peak.is_none_or(|(_, highest)| total as f64 > highest) {
            peak = Some((time as f64 / 1e9, total as f64));
        }
        last = total;
    }
    if peak.is_none() {
        bail!(
            "{} is no report of `gpuprobe report --analysis usage`",
            path.display()
        );
    }
    let leaked = Some(last as f64).filter(|&bytes| bytes > 0.0);
    Ok(Chart {
        peak,
        leaked,
        ..Chart::of(&steps, &labels)
    })
}

/// Time and bytes in a line of any format; none in what is no such line.
fn numbers(line: &str) -> Option<[i64; 5]> {
    let separator = |c: char| c.is_whitespace() || "[],".contains(c);
    let mut words = line.split(separator).filter(|word| !word.is_empty());
    let mut numbers = [0; 5];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some(numbers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_format_of_a_line() {
        let expected = Some([5, 4, 3, 2, 1]);
        for line in [
            "  5   4 3 2 1",
            "5\t4\t3\t2\t1",
            "5,4,3,2,1",
            ",[5,4,3,2,1]",
            "[5,4,3,2,1]",
        ] {
            assert_eq!(numbers(line), expected, "{line}");
        }
        for line in [
            "time,total,valid,invalid,driver",
            "",
            "1 2 3 4",
            "1 2 3 4 5 6",
            "]}",
        ] {
            assert_eq!(numbers(line), None, "{line}");
        }
        assert!(chart("nothing\n", Path::new("file")).is_err());
        let made = chart("time\n0,8,8,0,0\n1000000000,3,3,0,0\n", Path::new("file")).unwrap();
        assert_eq!((made.peak, made.leaked), (Some((0.0, 8.0)), Some(3.0)));
    }
}
