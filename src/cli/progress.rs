//! A progress bar on standard error.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use gpuprobe_os::progress::{ProgressDisplay, SharedProgress};
use gpuprobe_os::{before_lines, files};

/// Work that is over in this time shows no bar.
const QUIET_FOR: Duration = Duration::from_secs(1);

const LINE: &str = "gpuprobe: {msg} [{bar:30}] {percent:>3} %";

/// The bar of work whose output is written when it is done; nothing where standard error is no
/// terminal, or one without cursor movement (`TERM=dumb`).
pub(super) fn on_stderr() -> SharedProgress {
    let bar = Arc::new(Bar::new(ProgressDrawTarget::stderr(), QUIET_FOR));
    let shared = Arc::clone(&bar);
    before_lines(move || shared.clear());
    bar
}

/// The bar of work that writes to `output`, by default standard output, while it goes on. There is none
/// if that is a terminal: it is the one with the bar, and the lines of both would be mixed.
pub(super) fn beside(output: Option<&Path>) -> SharedProgress {
    let is_stdout = output.is_none_or(files::is_stdout);
    if is_stdout && io::stdout().is_terminal() {
        return Arc::new(());
    }
    on_stderr()
}

/// A bar that appears only after a while. While it is not drawn, it is finished: indicatif draws nothing then. It has a
/// length during a pass.
#[derive(Debug)]
struct Bar {
    bar: ProgressBar,
    quiet_for: Duration,
    /// When the first pass began.
    since: OnceLock<Instant>,
}

impl Bar {
    fn new(target: ProgressDrawTarget, quiet_for: Duration) -> Self {
        let style = ProgressStyle::with_template(LINE);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(None, target);
        let bar = bar.with_style(style.progress_chars("=> "));
        bar.finish_and_clear();
        Self {
            bar,
            quiet_for,
            since: OnceLock::new(),
        }
    }

    /// Clears the line; the next update draws it again.
    fn clear(&self) {
        if !self.bar.is_finished() {
            self.bar.finish_and_clear();
        }
    }

    fn update(&self, draw: impl FnOnce(&ProgressBar)) {
        let is_due = |since: &Instant| since.elapsed() >= self.quiet_for;
        if self.bar.length().is_some() && self.since.get().is_some_and(is_due) {
            if self.bar.is_finished() {
                self.bar.reset();
            }
            draw(&self.bar);
        }
    }
}

impl ProgressDisplay for Bar {
    fn begin(&self, what: &'static str, total: u64) -> bool {
        if self.bar.is_hidden() || self.bar.length().is_some() {
            return false;
        }
        self.since.get_or_init(Instant::now);
        self.bar.set_message(what);
        self.bar.set_length(total);
        true
    }

    fn advance(&self, done: u64) {
        self.update(|bar| bar.set_position(done.min(bar.length().unwrap_or(done))));
    }

    fn tick(&self) {
        self.update(ProgressBar::tick);
    }

    fn end(&self) {
        self.clear();
        self.bar.unset_length();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use indicatif::TermLike;

    use gpuprobe_os::progress::Pass;

    use super::*;

    /// A terminal of one line.
    #[derive(Clone, Debug, Default)]
    struct Line {
        now: Arc<Mutex<String>>,
        drawn: Arc<Mutex<Vec<String>>>,
    }

    impl Line {
        fn now(&self) -> String {
            self.now.lock().unwrap().trim_end().to_owned()
        }

        fn drawn(&self) -> Vec<String> {
            std::mem::take(&mut *self.drawn.lock().unwrap())
        }
    }

    impl TermLike for Line {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.now.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.now.lock().unwrap().clear();
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            let now = self.now();
            if !now.is_empty() {
                self.drawn.lock().unwrap().push(now);
            }
            Ok(())
        }
    }

    fn bar(line: &Line, quiet_for: Duration) -> Bar {
        Bar::new(
            ProgressDrawTarget::term_like(Box::new(line.clone())),
            quiet_for,
        )
    }

    #[test]
    fn long_work_has_a_bar_that_reaches_its_end_and_is_cleared() {
        let line = Line::default();
        let bar = bar(&line, Duration::ZERO);
        let pass = Pass::begin(&bar, "rows", 4);
        pass.advance(2);
        assert!(
            line.now().starts_with("gpuprobe: rows [====="),
            "{}",
            line.now()
        );
        assert!(line.now().ends_with("]  50 %"), "{}", line.now());
        pass.advance(2);
        drop(pass);
        assert_eq!(line.now(), "");
        let drawn = line.drawn();
        assert!(drawn.last().unwrap().ends_with("=] 100 %"), "{drawn:?}");
        assert!(
            drawn.iter().all(|line| line.contains(" rows [")),
            "{drawn:?}"
        );
    }

    #[test]
    fn short_work_has_no_bar() {
        let line = Line::default();
        let bar = bar(&line, Duration::from_secs(3600));
        let pass = Pass::begin(&bar, "rows", 2);
        pass.advance(2);
        bar.tick();
        drop(pass);
        assert_eq!(line.drawn(), [""; 0]);
    }

    #[test]
    fn a_message_has_the_line_for_itself() {
        let line = Line::default();
        let bar = bar(&line, Duration::ZERO);
        let pass = Pass::begin(&bar, "rows", 4);
        pass.step();
        assert_ne!(line.now(), "");
        bar.clear();
        assert_eq!(line.now(), "");
        pass.step();
        assert!(line.now().ends_with("]  50 %"), "{}", line.now());
    }

    #[test]
    fn inner_passes_are_not_shown() {
        let line = Line::default();
        let bar = bar(&line, Duration::ZERO);
        let outer = Pass::begin(&bar, "rows", 4);
        outer.step();
        drop(Pass::begin(&bar, "names", 1));
        assert!(line.now().contains("rows"), "{}", line.now());
    }

    #[test]
    fn without_a_terminal_nothing_is_counted() {
        let bar = Bar::new(ProgressDrawTarget::hidden(), Duration::ZERO);
        assert!(!bar.begin("rows", 1));
    }
}
