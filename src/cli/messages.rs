//! Messages on standard error.

use std::fmt;
use std::io::{self, IsTerminal};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{self as format, FmtContext};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use gpuprobe_model::text::printable;
use gpuprobe_os::{LogOutput, count_line};

/// From now on, warnings go to standard error; `GPUPROBE_LOG` asks for more, or for less.
pub(super) fn begin_log() {
    let requested = std::env::var("GPUPROBE_LOG").ok();
    let filter = requested.and_then(|levels| levels.parse().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = format::layer()
        .with_writer(LogOutput::default)
        .with_ansi(io::stderr().is_terminal())
        .event_format(LogLine);
    tracing_subscriber::registry()
        .with(lines)
        .with(filter)
        .init();
}

/// Each event as one line, whatever the names in it are.
struct LogLine;

impl<S, N> FormatEvent<S, N> for LogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        let mut message = String::new();
        context.format_fields(Writer::new(&mut message), event)?;
        let message = printable(&message);
        count_line();
        match color(level).filter(|_| out.has_ansi_escapes()) {
            Some(color) => writeln!(out, "\u{1b}[{color}m{level:>5}\u{1b}[0m {message}"),
            None => writeln!(out, "{level:>5} {message}"),
        }
    }
}

/// Of a level's name, as terminals number them.
fn color(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => Some(31),
        Level::WARN => Some(33),
        Level::INFO => Some(32),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_message_is_one_line_whatever_names_are_in_it() {
        for (ansi, level) in [(false, " WARN"), (true, "\u{1b}[33m WARN\u{1b}[0m")] {
            let said = Said::default();
            let writer = said.clone();
            let subscriber = format::fmt()
                .with_writer(move || writer.clone())
                .with_ansi(ansi)
                .event_format(LogLine)
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!("no {}", "\u{1b}[2J\r\n\u{e}\u{202e}");
            });
            let said = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
            assert_eq!(
                said,
                format!("{level} no \\x1b[2J\\r\\n\\u{{e}}\\u{{202e}}\n")
            );
        }
    }
}
