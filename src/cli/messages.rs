//! Messages on standard error.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use gpuprobe_os::LogOutput;

/// From now on, warnings go to standard error; `GPUPROBE_LOG` asks for more, or for less.
pub(super) fn begin_log() {
    let requested = std::env::var("GPUPROBE_LOG").ok();
    let filter = requested.and_then(|levels| levels.parse().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = fmt::layer().without_time().with_target(false);
    let lines = lines.with_ansi(false).with_writer(LogOutput::default);
    tracing_subscriber::registry()
        .with(lines)
        .with(filter)
        .init();
}
