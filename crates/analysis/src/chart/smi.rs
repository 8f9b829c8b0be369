//! Memory use according to `nvidia-smi`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use chrono::{NaiveDateTime, TimeDelta};

use super::{ChartLine, seconds};
use gpuprobe_recording::Database;
use gpuprobe_recording::row::integer;

/// GPUs of a host at most.
const MAX_GPUS: usize = 64;

/// A sample of `nvidia-smi`: local time of the host, index of the GPU, and bytes of its memory in use.
pub type SmiSample = (NaiveDateTime, usize, f64);

/// Reads the output of `nvidia-smi --query-gpu=timestamp,memory.used --format=csv` with or without
/// header and units, and with or without the GPU's index between the two.
///
/// # Errors
/// A line that is none of these.
pub fn parse(text: &str) -> Result<Vec<SmiSample>> {
    let mut samples = Vec::new();
    let mut is_named = false;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() || line.trim_start().starts_with("timestamp") {
            continue;
        }
        let Some((time, gpu, bytes)) = sample(line) else {
            // The last line may be cut short: nvidia-smi is stopped by a signal.
            if lines.peek().is_none() && number > 0 {
                break;
            }
            let number = number + 1;
            bail!("line {number}: '{line}' is no timestamp and memory.used");
        };
        is_named |= gpu.is_some();
        samples.push((time, gpu.unwrap_or(0), bytes));
    }
    if samples.is_empty() {
        bail!("no samples of nvidia-smi");
    }
    if !is_named {
        let gpus = count_gpus(&samples);
        for (index, (_, gpu, _)) in samples.iter_mut().enumerate() {
            *gpu = index % gpus;
        }
    }
    Ok(samples)
}

fn sample(line: &str) -> Option<(NaiveDateTime, Option<usize>, f64)> {
    let mut fields = line.split(',').map(str::trim);
    let time = fields.next()?.replace('/', "-");
    let time = NaiveDateTime::parse_from_str(&time, "%Y-%m-%d %H:%M:%S%.f").ok()?;
    let used = fields.next_back()?;
    let gpu = fields
        .next()
        .map(|gpu| gpu.parse().ok().filter(|&gpu| gpu < MAX_GPUS));
    let mib: f64 = used.trim_end_matches(" MiB").parse().ok()?;
    // An index that is none is an error, as are further fields.
    let is_valid = fields.next().is_none() && gpu != Some(None);
    let bytes = Some(mib * 1_048_576.0).filter(|bytes| bytes.is_finite() && *bytes >= 0.0)?;
    is_valid.then_some((time, gpu.flatten(), bytes))
}

/// GPUs come in turn, all of a turn at nearly the same time. Their number is the least after which
/// there is regularly a pause that is about as long as any.
fn count_gpus(samples: &[SmiSample]) -> usize {
    let pairs = samples.windows(2);
    let gaps: Vec<_> = pairs.map(|pair| pair[1].0 - pair[0].0).collect();
    let pause = |gpus: usize| {
        let mut pauses: Vec<_> = gaps.iter().skip(gpus - 1).step_by(gpus).collect();
        pauses.sort();
        let middle = pauses.get(pauses.len() / 2).filter(|_| pauses.len() > 1);
        middle.map_or(TimeDelta::zero(), |pause| **pause)
    };
    let longest = (1..=MAX_GPUS).map(pause).max().unwrap_or(TimeDelta::zero());
    (1..=MAX_GPUS)
        .find(|gpus| pause(*gpus) >= longest * 4 / 5)
        .unwrap_or(1)
}

/// The samples as lines, in seconds after `zero_ns` (since 1970, UTC). Times are `offset_s` east.
pub fn lines(samples: &[SmiSample], zero_ns: i64, offset_s: i32) -> Vec<ChartLine> {
    by_gpu(samples.iter().map(|&(time, gpu, bytes)| {
        let utc = time.checked_sub_signed(TimeDelta::seconds(i64::from(offset_s)));
        let ns = utc.and_then(|utc| utc.and_utc().timestamp_nanos_opt());
        let since_zero = ns.unwrap_or(0).saturating_sub(zero_ns);
        (gpu, seconds(since_zero), bytes)
    }))
}

/// The samples that a recording took itself.
pub(crate) fn recorded(database: &Database, first_ns: i64) -> Result<Vec<ChartLine>> {
    let mut samples = Vec::new();
    database.each("GPUPROBE_SMI", "t0, gpu, usedBytes", "", |found| {
        let number = |index| integer(found, index);
        if let (Some(time), Some(gpu), Some(bytes)) = (number(0), number(1), number(2)) {
            let gpu = usize::try_from(gpu).unwrap_or(0).min(MAX_GPUS);
            samples.push((gpu, seconds(time.saturating_sub(first_ns)), bytes as f64));
        }
    })?;
    Ok(by_gpu(samples.into_iter()))
}

fn by_gpu(samples: impl Iterator<Item = (usize, f64, f64)>) -> Vec<ChartLine> {
    let mut gpus: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
    for (gpu, time, bytes) in samples {
        gpus.entry(gpu).or_default().push((time, bytes));
    }
    let lines = gpus.into_iter().map(|(gpu, points)| ChartLine {
        label: format!("nvidia-smi, GPU {gpu}"),
        points,
    });
    lines.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_gpu_with_and_without_units() {
        let text = "timestamp, memory.used [MiB]\n2026/11/20 20:34:22.574, 512 MiB\n\
                    2026/11/20 20:34:22.584, 1024\n";
        let samples = parse(text).unwrap();
        assert_eq!((samples[0].1, samples[0].2), (0, 512.0 * 1_048_576.0));
        assert_eq!((samples[1].1, samples[1].2), (0, 1_073_741_824.0));
        let lines = lines(&samples, 1_795_206_862_000_000_000, 0);
        assert!((lines[0].points[0].0 - 0.574).abs() < 1e-6, "{lines:?}");
        let east = super::lines(
            &samples,
            1_795_206_862_000_000_000 - 7_200_000_000_000,
            7200,
        );
        assert!((east[0].points[0].0 - 0.574).abs() < 1e-6);
    }

    #[test]
    fn several_gpus_come_in_turn() {
        for gpus in [2usize, 3, 8] {
            let mut text = String::new();
            for turn in 0..20 {
                for gpu in 0..gpus {
                    let ms = turn * 10 + gpu / 4;
                    text += &format!("2026/11/20 20:34:22.{ms:03}, {}\n", gpu * 100 + turn);
                }
            }
            let samples = parse(&text).unwrap();
            assert_eq!(samples[gpus + 1].1, 1, "{gpus}");
            assert_eq!(lines(&samples, 0, 0).len(), gpus);
        }
        let with_index = "2026/11/20 20:34:22.574, 1, 5\n2026/11/20 20:34:22.574, 0, 6\n";
        let samples = parse(with_index).unwrap();
        assert_eq!((samples[0].1, samples[1].1), (1, 0));
    }

    #[test]
    fn one_gpu_is_one() {
        let text: String = (0..50)
            .map(|n| format!("2026/11/20 20:34:22.{:03}, 7\n", n * 10 + n % 3))
            .collect();
        assert_eq!(lines(&parse(&text).unwrap(), 0, 0).len(), 1);
    }

    #[test]
    fn what_is_not_from_nvidia_smi_is_refused() {
        for text in [
            "",
            "a\nb\n",
            "2026/11/20 20:34:22.574, [N/A]\nx\n",
            "2026/11/20, 5\n\n1\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        // Cut short at the end.
        assert_eq!(
            parse("2026/11/20 20:34:22.574, 5\n2026/11/20 20:3")
                .unwrap()
                .len(),
            1
        );
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "[0-9/: ,.MiB\n]{0,80}") {
            let _ = parse(&text);
        }
    }
}
