//! The first lines of each screen: the run as a whole, and the GPUs.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use gpuprobe_model::GpuMemory;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_report::memleak::{DeviceReport, Memleak};
use gpuprobe_report::words::{age, plural, short_model, signed_size};

use super::series::UsedSeries;
use super::style::{gauge, spark, style};
use crate::feed::{PlaybackState, Update};

/// Columns of the bar of a GPU.
const GAUGE: usize = 10;
/// Columns of a sparkline, at least and at most.
const SPARK: (usize, usize) = (8, 60);

fn part(text: impl AsRef<str>, style: impl Into<Style>) -> Span<'static> {
    Span::styled(format!("{}  ", text.as_ref()), style)
}

fn plain(text: impl AsRef<str>) -> Span<'static> {
    part(text, Style::new())
}

/// The line about the run; where there is no room, it lacks its end.
pub(crate) fn title(update: &Update, is_paused: bool) -> Line<'static> {
    let (report, playing) = (&update.report, update.playing.as_ref());
    let lost = report.lost.any();
    let lost = lost.then(|| report.lost.by_name().values().sum::<u64>());
    let memleak = report.memleak.as_ref();
    let held = memleak.map(|memleak| size(memleak.live.gpu.bytes));
    let processes = memleak.map(|memleak| plural(memleak.processes.len() as u64, "process"));
    let host = memleak.and_then(|memleak| memleak.host_name.as_ref());
    let host = host.filter(|_| playing.is_none());
    let time = report.time.map(|time| time.format("%H:%M:%S").to_string());
    let parts = [
        Some(part("gpuprobe top", style(Tone::Heading))),
        is_paused.then(|| part("PAUSED", style(Tone::Warning))),
        lost.map(|lost| part(format!("LOST {lost} (see ?)"), style(Tone::Bad))),
        playing.map(|playing| plain(position(playing))),
        held.map(|held| plain(format!("{held} held"))),
        time.map(plain),
        processes.map(plain),
        host.map(|host| plain(printable(host))),
        playing.map(|playing| plain(printable(&playing.file))),
    ];
    parts.into_iter().flatten().collect()
}

/// `0:42 of 5:10, 10x`.
fn position(playing: &PlaybackState) -> String {
    let is_stopped = if playing.is_stopped { ", stopped" } else { "" };
    let (at, length) = (age(playing.at_ns), age(playing.length_ns));
    format!("{at} of {length}, {}x{is_stopped}", playing.speed)
}

/// The lines about GPUs.
pub(crate) fn gpus(update: &Update, series: &UsedSeries, columns: u16) -> Vec<Line<'static>> {
    let Some(memleak) = &update.report.memleak else {
        return Vec::new();
    };
    if memleak.gpus.is_empty() {
        return memleak.devices.iter().map(without_nvml).collect();
    }
    let copies = update.report.bandwidth_util.as_ref();
    let link = copies.and_then(|copies| copies.link);
    let link = link.map(|link| plain(link.to_string()));
    let gpus = memleak.gpus.iter().map(|gpu| {
        let parts = parts_of(gpu, memleak).into_iter().chain([link.clone()]);
        let mut line: Line<'_> = parts.flatten().collect();
        let room = usize::from(columns).saturating_sub(line.width());
        if room >= SPARK.0 {
            let values = series.values(gpu.index, room.min(SPARK.1));
            line.push_span(spark(&values, gpu.total_bytes.unwrap_or(0)));
        }
        line
    });
    gpus.collect()
}

/// A device where NVML is not available.
fn without_nvml(device: &DeviceReport) -> Line<'static> {
    let name = match (device.identity.physical_index, device.device) {
        (Some(index), _) => format!("GPU {index}"),
        (None, Some(device)) => format!("device {device}"),
        (None, None) => "GPU unknown".into(),
    };
    Line::from(format!("{name}  tracked {}", size(device.live.bytes)))
}

fn parts_of(gpu: &GpuMemory, memleak: &Memleak) -> [Option<Span<'static>>; 7] {
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
    let busy = gpu.busy_percent;
    [
        Some(plain(format!("GPU {}", gpu.index))),
        used.map(plain),
        share.map(|share| part(gauge(share, GAUGE), color)),
        Some(plain(format!("tracked {}", size(tracked)))),
        other.map(|other| plain(format!("other {other}"))),
        busy.map(|busy| plain(format!("busy {busy} %"))),
        Some(plain(short_model(&gpu.name))),
    ]
}
