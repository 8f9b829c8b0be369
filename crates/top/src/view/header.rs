//! The first lines of each screen: the run as a whole, and the GPUs.

use ratatui_core::style::{Color, Style};
use ratatui_core::text::{Line, Span};

use gpuprobe_model::GpuMemory;
use gpuprobe_model::text::{printable, size, width};
use gpuprobe_os::color::Tone;
use gpuprobe_report::memleak::{DeviceReport, Memleak};
use gpuprobe_report::words::{age, plural, short_model, signed_size};

use super::look::{Theme, gauge, spark};
use crate::feed::{PlaybackState, Update};
use crate::series::{Figure, FigureSeries};

/// Columns of the bar of a GPU.
const GAUGE: usize = 10;
/// Columns of a sparkline, at least and at most.
const SPARK: (usize, usize) = (8, 60);

/// A part of a line, which is left out where there is no room for it.
struct Part {
    text: String,
    style: Style,
    /// Parts of a smaller rank have the room first.
    rank: u8,
}

/// The line about the run.
pub(crate) fn title(update: &Update, is_paused: bool, columns: u16, theme: Theme) -> Line<'static> {
    let report = &update.report;
    let part = |text: String, tone, rank| Part {
        text,
        style: theme.tone(tone),
        rank,
    };
    let plain = |text: String, rank| Part {
        text,
        style: Style::new(),
        rank,
    };
    let mut parts = vec![part("gpuprobe top".into(), Tone::Heading, 0)];
    if is_paused {
        parts.push(part("PAUSED".into(), Tone::Warning, 0));
    }
    if report.lost.any() {
        let lost: u64 = report.lost.by_name().values().sum();
        parts.push(part(format!("LOST {lost}"), Tone::Bad, 0));
    }
    if let Some(playing) = &update.playing {
        parts.push(plain(position(playing), 0));
        parts.push(plain(printable(&playing.file), 2));
    }
    if let Some(memleak) = &report.memleak {
        parts.push(plain(format!("{} held", size(memleak.live.live_bytes)), 1));
        let processes = memleak.processes.len() as u64;
        parts.push(plain(plural(processes, "process"), 3));
        if let Some(host) = memleak
            .host_name
            .as_deref()
            .filter(|_| update.playing.is_none())
        {
            parts.push(plain(printable(host), 4));
        }
    }
    if let Some(time) = report.time {
        parts.push(plain(time.format("%H:%M:%S").to_string(), 1));
    }
    line(parts, columns)
}

/// `0:42 of 5:10, 10x`.
fn position(playing: &PlaybackState) -> String {
    let is_stopped = if playing.is_stopped { ", stopped" } else { "" };
    let (at, length) = (age(playing.at_ns), age(playing.length_ns));
    format!("{at} of {length}, {}x{is_stopped}", playing.speed)
}

/// The lines about GPUs.
pub(crate) fn gpus(
    update: &Update,
    series: &FigureSeries,
    columns: u16,
    theme: Theme,
) -> Vec<Line<'static>> {
    let Some(memleak) = &update.report.memleak else {
        return Vec::new();
    };
    let link = update.report.bandwidth_util.as_ref();
    let link = link.and_then(|copies| copies.link);
    let link = link.map(|link| link.to_string());
    if memleak.gpus.is_empty() {
        let devices = memleak.devices.iter();
        return devices
            .map(|device| gpu_without_nvml(device, columns))
            .collect();
    }
    let gpus = memleak.gpus.iter();
    gpus.map(|gpu| line_of(gpu, memleak, link.as_deref(), series, columns, theme))
        .collect()
}

/// A device where NVML is not available.
fn gpu_without_nvml(device: &DeviceReport, columns: u16) -> Line<'static> {
    let name = match (device.physical_index, device.device) {
        (Some(index), _) => format!("GPU {index}"),
        (None, Some(device)) => format!("device {device}"),
        (None, None) => "GPU ?".into(),
    };
    let parts = [name, format!("tracked {}", size(device.bytes))];
    let parts = parts.map(|text| Part {
        text,
        style: Style::new(),
        rank: 0,
    });
    line(parts.into(), columns)
}

/// Bytes of traced live memory on a GPU of the host.
fn tracked(gpu: &GpuMemory, memleak: &Memleak) -> u64 {
    let shares = memleak.processes.iter().flat_map(|process| &process.gpus);
    let here = shares.filter(|share| share.index == Some(gpu.index));
    here.fold(0, |sum, share| sum.saturating_add(share.live_bytes))
}

fn line_of(
    gpu: &GpuMemory,
    memleak: &Memleak,
    link: Option<&str>,
    series: &FigureSeries,
    columns: u16,
    theme: Theme,
) -> Line<'static> {
    let plain = |text: String, rank| Part {
        text,
        style: Style::new(),
        rank,
    };
    let mut parts = vec![plain(format!("GPU {}", gpu.index), 0)];
    parts.push(plain(short_model(&gpu.name), 5));
    if let (Some(used), Some(total)) = (gpu.used_bytes, gpu.total_bytes) {
        let share = used as f64 / total.max(1) as f64;
        let color = match share {
            0.9.. => Color::Red,
            0.7.. => Color::Yellow,
            _ => Color::Green,
        };
        parts.push(Part {
            text: gauge(share, GAUGE),
            style: theme.color(color),
            rank: 2,
        });
        parts.push(plain(format!("{} of {}", size(used), size(total)), 0));
    }
    let tracked = tracked(gpu, memleak);
    parts.push(plain(format!("tracked {}", size(tracked)), 1));
    if let Some(used) = gpu.used_bytes {
        let other = i128::from(used) - i128::from(tracked);
        let other = i64::try_from(other).unwrap_or(i64::MAX);
        let other = match u64::try_from(other) {
            Ok(other) => size(other),
            Err(_) => signed_size(other),
        };
        parts.push(plain(format!("other {other}"), 3));
    }
    if let Some(busy) = gpu.busy_percent {
        parts.push(plain(format!("busy {busy} %"), 1));
    }
    if let Some(link) = link {
        parts.push(plain(link.to_owned(), 6));
    }
    let parts = fitting(parts, columns);
    let taken: usize = parts.iter().map(|part| width(&part.text) + 2).sum();
    let room = usize::from(columns).saturating_sub(taken);
    let mut line = joined(parts);
    if room >= SPARK.0 {
        let values = series.values(Figure::Used(gpu.index), room.min(SPARK.1));
        let spark = spark(&values, gpu.total_bytes.unwrap_or(0));
        line.push_span(Span::raw("  "));
        line.push_span(Span::styled(spark, theme.color(Color::Cyan)));
    }
    line
}

fn line(parts: Vec<Part>, columns: u16) -> Line<'static> {
    joined(fitting(parts, columns))
}

/// The parts for which a line has room.
fn fitting(mut parts: Vec<Part>, columns: u16) -> Vec<Part> {
    let taken = |parts: &[Part]| {
        let widths = parts.iter().map(|part| width(&part.text) + 2);
        widths.sum::<usize>().saturating_sub(2)
    };
    while parts.len() > 1 && taken(&parts) > usize::from(columns) {
        let last = (0..parts.len()).max_by_key(|&place| (parts[place].rank, place));
        parts.remove(last.unwrap_or(0));
    }
    parts
}

fn joined(parts: Vec<Part>) -> Line<'static> {
    let mut line = Line::default();
    for (place, part) in parts.into_iter().enumerate() {
        if place > 0 {
            line.push_span(Span::raw("  "));
        }
        line.push_span(Span::styled(part.text, part.style));
    }
    line
}
