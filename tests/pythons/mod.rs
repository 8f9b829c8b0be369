//! The CPython interpreters for the tests.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Debug)]
pub(crate) struct Python {
    pub(crate) program: PathBuf,
    pub(crate) minor: u32,
    /// Full version: `3.13.5`, with `t` appended if it is free-threaded.
    pub(crate) version: String,
}

/// The supported minor versions of CPython 3.
const MINORS: std::ops::RangeInclusive<u32> = 11..=14;

/// The script that each candidate runs.
const QUESTION: &str = "import sys, sysconfig
if sys.implementation.name == 'cpython':
    free = sysconfig.get_config_var('Py_GIL_DISABLED') and 't' or ''
    print(sys.version_info[1], '%d.%d.%d' % sys.version_info[:3] + free, sys.executable)";

impl Python {
    /// The interpreter at `path`, which may be a link or a wrapper script.
    fn at(path: &Path) -> Option<Self> {
        let asked = Command::new(path).args(["-c", QUESTION]).output().ok()?;
        let said = String::from_utf8(asked.stdout).ok()?;
        let mut words = said.trim().splitn(3, ' ');
        let minor = words.next()?.parse().ok()?;
        let version = words.next()?.to_owned();
        let program = Path::new(words.next()?).canonicalize().ok()?;
        MINORS.contains(&minor).then_some(Self {
            program,
            minor,
            version,
        })
    }
}

/// Every CPython of a supported version, the oldest first: from PATH, pyenv, and target/pythons,
/// where `scripts/fetch-pythons.sh` installs them. One of each version.
pub(crate) fn pythons() -> Vec<Python> {
    let mut found: Vec<_> = candidates()
        .iter()
        .filter_map(|path| Python::at(path))
        .collect();
    found.sort_by(|a, b| (a.minor, &a.version).cmp(&(b.minor, &b.version)));
    found.dedup_by(|a, b| a.version == b.version);
    found
}

fn candidates() -> Vec<PathBuf> {
    let names = || MINORS.map(|minor| format!("python3.{minor}"));
    let path = env::var_os("PATH").unwrap_or_default();
    let searched = env::split_paths(&path).flat_map(|folder| {
        let names = names().chain(["python3".to_owned()]);
        names.map(move |name| folder.join(name)).collect::<Vec<_>>()
    });
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"));
    let pyenv = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenvs = [pyenv, home, Some("/root/.pyenv".into())];
    let roots = pyenvs.into_iter().flatten();
    let versions = roots.map(|root| root.join("versions"));
    // The tests of every crate of the workspace find these.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let fetched = above.map(|folder| folder.join("target/pythons"));
    let folders = versions.chain(fetched).filter_map(|f| f.read_dir().ok());
    let installed = folders.flatten().flatten();
    let installed = installed.map(|folder| folder.path().join("bin/python3"));
    searched
        .chain(installed)
        .filter(|path| path.exists())
        .collect()
}
