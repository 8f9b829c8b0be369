//! The first lines of each screen: the run as a whole, and the GPUs.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use gpuprobe_model::GpuMemory;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_report::memleak::{DeviceReport, Memleak};
use gpuprobe_report::words::{age, plural, short_model, signed_size};

use super::series::{Figure, FigureSeries};
use super::style::{gauge, spark, style};
use crate::feed::{PlaybackState, Update};

/// Columns of the bar of a GPU.
const GAUGE: usize = 10;
/// Columns of a sparkline, at least and at most.
const SPARK: (usize, usize) = (8, 60);

/// A part of a line, which is left out where there is no room for it; those of a smaller rank have the room first.
type Part = (u8, Span<'static>);

fn part(rank: u8, text: &str, style: Style) -> Part {
    (rank, Span::styled(format!("{text}  "), style))
}

fn plain(rank: u8, text: impl AsRef<str>) -> Part {
    part(rank, text.as_ref(), Style::new())
}

/// The parts for which a line has room.
fn line(parts: impl IntoIterator<Item = Option<Part>>, columns: u16) -> Line<'static> {
    let mut parts: Vec<Part> = parts.into_iter().flatten().collect();
    let taken = |parts: &[Part]| parts.iter().map(|(_, span)| span.width()).sum::<usize>();
    while parts.len() > 1 && taken(&parts) > usize::from(columns) + 2 {
        let last = (0..parts.len()).max_by_key(|&place| (parts[place].0, place));
        parts.remove(last.unwrap_or(0));
    }
    parts.into_iter().map(|(_, span)| span).collect()
}

/// The line about the run.
pub(crate) fn title(update: &Update, is_paused: bool, columns: u16) -> Line<'static> {
    let (report, playing) = (&update.report, update.playing.as_ref());
    let lost = report
        .lost
        .any()
        .then(|| report.lost.by_name().values().sum::<u64>());
    let memleak = report.memleak.as_ref();
    let held = memleak.map(|memleak| size(memleak.live.live_bytes));
    let processes = memleak.map(|memleak| plural(memleak.processes.len() as u64, "process"));
    let host = memleak.and_then(|memleak| memleak.host_name.as_ref());
    let parts = [
        Some(part(0, "gpuprobe top", style(Tone::Heading))),
        is_paused.then(|| part(0, "PAUSED", style(Tone::Warning))),
        lost.map(|lost| part(0, &format!("LOST {lost}"), style(Tone::Bad))),
        playing.map(|playing| plain(0, position(playing))),
        playing.map(|playing| plain(2, printable(&playing.file))),
        held.map(|held| plain(1, format!("{held} held"))),
        processes.map(|processes| plain(3, processes)),
        host.filter(|_| playing.is_none())
            .map(|host| plain(4, printable(host))),
        report
            .time
            .map(|time| plain(1, time.format("%H:%M:%S").to_string())),
    ];
    line(parts, columns)
}

/// `0:42 of 5:10, 10x`.
fn position(playing: &PlaybackState) -> String {
    let is_stopped = if playing.is_stopped { ", stopped" } else { "" };
    let (at, length) = (age(playing.at_ns), age(playing.length_ns));
    format!("{at} of {length}, {}x{is_stopped}", playing.speed)
}

/// The lines about GPUs.
pub(crate) fn gpus(update: &Update, series: &FigureSeries, columns: u16) -> Vec<Line<'static>> {
    let Some(memleak) = &update.report.memleak else {
        return Vec::new();
    };
    if memleak.gpus.is_empty() {
        let lines = memleak
            .devices
            .iter()
            .map(|device| without_nvml(device, columns));
        return lines.collect();
    }
    let copies = update.report.bandwidth_util.as_ref();
    let link = copies.and_then(|copies| copies.link);
    let link = link.map(|link| plain(6, link.to_string()));
    let gpus = memleak.gpus.iter().map(|gpu| {
        let parts = parts_of(gpu, memleak).into_iter().chain([link.clone()]);
        let mut line = line(parts, columns);
        let room = usize::from(columns).saturating_sub(line.width());
        if room >= SPARK.0 {
            let values = series.values(Figure::Used(gpu.index), room.min(SPARK.1));
            line.push_span(spark(&values, gpu.total_bytes.unwrap_or(0)));
        }
        line
    });
    gpus.collect()
}

/// A device where NVML is not available.
fn without_nvml(device: &DeviceReport, columns: u16) -> Line<'static> {
    let name = match (device.physical_index, device.device) {
        (Some(index), _) => format!("GPU {index}"),
        (None, Some(device)) => format!("device {device}"),
        (None, None) => "GPU ?".into(),
    };
    let tracked = format!("tracked {}", size(device.bytes));
    line([name, tracked].map(|text| Some(plain(0, text))), columns)
}

fn parts_of(gpu: &GpuMemory, memleak: &Memleak) -> [Option<Part>; 7] {
    let used = gpu.used_bytes.zip(gpu.total_bytes);
    let share = used.map(|(used, total)| used as f64 / total.max(1) as f64);
    let color = match share {
        Some(0.9..) => Color::Red,
        Some(0.7..) => Color::Yellow,
        _ => Color::Green,
    };
    let shares = memleak.processes.iter().flat_map(|process| &process.gpus);
    let here = shares.filter(|share| share.index == Some(gpu.index));
    let tracked = here.fold(0u64, |sum, share| sum.saturating_add(share.live_bytes));
    let other = gpu.used_bytes.map(|used| match used.checked_sub(tracked) {
        Some(other) => size(other),
        None => signed_size(used.wrapping_sub(tracked) as i64),
    });
    let used = used.map(|(used, total)| format!("{} of {}", size(used), size(total)));
    [
        Some(plain(0, format!("GPU {}", gpu.index))),
        Some(plain(5, short_model(&gpu.name))),
        share.map(|share| part(2, &gauge(share, GAUGE), color.into())),
        used.map(|used| plain(0, used)),
        Some(plain(1, format!("tracked {}", size(tracked)))),
        other.map(|other| plain(3, format!("other {other}"))),
        gpu.busy_percent
            .map(|busy| plain(1, format!("busy {busy} %"))),
    ]
}
