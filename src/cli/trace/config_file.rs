//! Options in a file: its keys are the names of options, in TOML.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use toml::{Table, Value};

use super::super::{Cli, removed};

/// The subcommand that takes one.
const COMMAND: &str = "serve";
/// The option with its path.
const OPTION: &str = "--config";

/// `words`, the command line, with the options of its configuration file, if it names one.
///
/// # Errors
/// Returns an error if the file cannot be read, is not TOML, or has a key that is no option.
pub(in crate::cli) fn with_file(words: Vec<OsString>) -> Result<Vec<OsString>> {
    if words.get(1).is_none_or(|word| word != COMMAND) {
        return Ok(words);
    }
    let end = words.iter().position(|word| word == "--");
    let options = &words[2..end.unwrap_or(words.len())];
    let Some(path) = path_in(options) else {
        return Ok(words);
    };
    let path = Path::new(&path);
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let of_file = words_of(&text, options).with_context(|| path.display().to_string())?;
    let (command, rest) = words.split_at(2);
    Ok([command, &of_file, rest].concat())
}

/// The path after `--config`.
fn path_in(options: &[OsString]) -> Option<OsString> {
    let at = options.iter().position(|word| {
        let word = word.as_encoded_bytes();
        word == OPTION.as_bytes() || word.starts_with(b"--config=")
    })?;
    match options[at].to_str().and_then(|word| word.split_once('=')) {
        Some((_, path)) => Some(path.into()),
        None => options.get(at + 1).cloned(),
    }
}

/// The settings of a file as options, without those that are `given` on the command line.
fn words_of(text: &str, given: &[OsString]) -> Result<Vec<OsString>> {
    let table: Table = text.parse()?;
    let mut words = Vec::new();
    for (key, value) in &table {
        let name = key.replace('_', "-");
        let short = short_of(&name)?;
        if !is_given(&name, short, given) {
            words.extend(option(&name, value)?);
        }
    }
    Ok(words)
}

/// The letter of an option, if it has one.
fn short_of(name: &str) -> Result<Option<char>> {
    let command = Cli::command();
    let serve = command.find_subcommand(COMMAND);
    let mut options = serve.into_iter().flat_map(clap::Command::get_arguments);
    match options.find(|option| option.get_long() == Some(name)) {
        Some(option) if name != "config" => Ok(option.get_short()),
        // The error is the one of the command line.
        None if removed::replacement(&format!("--{name}")).is_some() => Ok(None),
        _ => bail!("'{name}' is no option of `gpuprobe {COMMAND}`"),
    }
}

fn is_given(name: &str, short: Option<char>, given: &[OsString]) -> bool {
    let is_it = |word: &OsStr| {
        let word = word.to_string_lossy();
        let long = word
            .strip_prefix("--")
            .and_then(|word| word.strip_prefix(name));
        let letter = short.is_some_and(|letter| word.starts_with(&format!("-{letter}")));
        letter || long.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    given.iter().any(|word| is_it(word))
}

/// The words of an option with `value`: several for a list, none for `false`.
fn option(name: &str, value: &Value) -> Result<Vec<OsString>> {
    let with = |text: &str| OsString::from(format!("--{name}={text}"));
    Ok(match value {
        Value::Boolean(true) => vec![format!("--{name}").into()],
        Value::Boolean(false) => Vec::new(),
        Value::String(text) => vec![with(text)],
        Value::Integer(number) => vec![with(&number.to_string())],
        Value::Array(values) => {
            let words = values.iter().map(|value| option(name, value));
            words.collect::<Result<Vec<_>>>()?.concat()
        }
        other => bail!("'{name}' cannot be a {}", other.type_str()),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    fn words(text: &str, given: &str) -> Result<Vec<String>> {
        let given: Vec<_> = given.split_whitespace().map(OsString::from).collect();
        let words = words_of(text, &given)?.into_iter();
        Ok(words.map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn settings_are_options() {
        let text = "listen = \"unix:/run/x\"\nmax_series = 50\nmemleak = true\ncudatrace = false\n\
                    comm = [\"a\", \"b\"]\npid = 7\n";
        let all = [
            "--comm=a",
            "--comm=b",
            "--listen=unix:/run/x",
            "--max-series=50",
            "--memleak",
            "--pid=7",
        ];
        assert_eq!(words(text, "").unwrap(), all);
        let fewer = words(text, "--listen x --comm=c -p 8").unwrap();
        assert_eq!(fewer, ["--max-series=50", "--memleak"]);
        // Its error says what takes its place.
        assert_eq!(words("otlp = \"x\"", "").unwrap(), ["--otlp=x"]);
        for wrong in [
            "listens = 1",
            "listen",
            "config = \"x\"",
            "max-series = 1.5",
        ] {
            assert!(words(wrong, "").is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_is_read_for_one_command_only() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("gpuprobe.toml");
        fs::write(&path, "max-series = 50\n").unwrap();
        let path = path.to_str().unwrap();
        let line = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            with_file(words).unwrap().len()
        };
        assert_eq!(line(&["gpuprobe", "serve", "--config", path]), 5);
        assert_eq!(line(&["gpuprobe", "serve", &format!("--config={path}")]), 4);
        assert_eq!(
            line(&["gpuprobe", "serve", "--", "app", "--config", path]),
            6
        );
        assert_eq!(line(&["gpuprobe", "record", "--config", path]), 4);
        let words = ["gpuprobe", "serve", "--config", path].map(OsString::from);
        let words = with_file(words.to_vec()).unwrap();
        assert!(Cli::try_parse_from(words).is_ok());
        let missing = ["gpuprobe", "serve", "--config", "/nowhere"].map(OsString::from);
        assert!(with_file(missing.to_vec()).is_err());
    }
}
