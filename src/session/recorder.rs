//! The recording of a run, if there is to be one.

use anyhow::Result;

use super::{Config, Target};
use crate::clock::Clock;
use crate::recording::{Facts, Recorder, Tap};

/// Begins the recording that `config` asks for, so that a bad path fails before anything is traced.
pub(super) fn open(config: &Config, clock: Clock) -> Result<Box<dyn Tap>> {
    let Some(record) = &config.record else {
        return Ok(Box::new(()));
    };
    let command = match &config.target {
        Target::Command(words) => words
            .iter()
            .map(|w| w.to_string_lossy().into_owned())
            .collect(),
        Target::Everything | Target::Process(_) => Vec::new(),
    };
    let line = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let facts = Facts {
        clock,
        command,
        command_line: line.collect(),
        all_tables: record.all_tables,
        kinds: config.kinds,
        ..Facts::now(config.modes)
    };
    Ok(Box::new(Recorder::start(&record.path, facts)?))
}
