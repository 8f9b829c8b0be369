//! Default file names of recordings.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Local};

use super::Target;

/// Maximum number of characters of a program's name in the file name.
const MAX_LETTERS: usize = 40;

/// The default path of a recording of `target` that begins at `time`, in the current directory:
/// `gpuprobe-NAME-DATE.sqlite`.
pub fn recording_path(target: &Target, time: DateTime<Local>) -> PathBuf {
    let of = match target {
        Target::Everything => "host".to_owned(),
        Target::Processes(pids) => {
            let pid = pids.first().copied().unwrap_or(0);
            let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            let comm = String::from_utf8_lossy(&comm);
            format!("{}-{pid}", plain(comm.trim_end()))
        }
        Target::Command(words) => {
            let program = words.first().map(Path::new);
            let name = program.and_then(Path::file_name).unwrap_or_default();
            plain(&name.to_string_lossy())
        }
    };
    format!("gpuprobe-{of}-{}.sqlite", time.format("%Y%m%d-%H%M%S")).into()
}

/// `name` with all characters replaced that need quotes in a shell or separate directories.
fn plain(name: &str) -> String {
    let kept = |c: char| match c {
        '.' | '_' | '+' | '-' => c,
        c if c.is_alphanumeric() => c,
        _ => '_',
    };
    name.chars().map(kept).take(MAX_LETTERS).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::TimeZone;

    use super::*;

    #[test]
    fn default_names_contain_target_and_date() {
        let time = Local.with_ymd_and_hms(2026, 11, 22, 15, 45, 33).unwrap();
        let path = |target: &Target| recording_path(target, time);
        let whole = |text: &str| PathBuf::from(format!("gpuprobe-{text}-20261122-154533.sqlite"));
        assert_eq!(path(&Target::Everything), whole("host"));
        let command = |word: &str| Target::Command(vec![word.into(), "-x".into()]);
        assert_eq!(path(&command("./bin/train")), whole("train"));
        assert_eq!(path(&command("/a/my app;rm\n*")), whole("my_app_rm__"));
        assert_eq!(
            path(&command(&"x".repeat(300))),
            whole(&"x".repeat(MAX_LETTERS))
        );
        let own = std::process::id();
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        let expected = format!("{}-{own}", plain(comm.trim_end()));
        assert_eq!(path(&Target::Processes(vec![own])), whole(&expected));
    }
}
