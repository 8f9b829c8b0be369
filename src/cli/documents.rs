//! Documents that are made from the command line's description: completions and man pages.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use super::status;

#[derive(Debug, Args)]
pub(super) struct CompletionArgs {
    /// The shell, whose script goes to standard output.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

impl CompletionArgs {
    /// The script that makes the shell complete the command line.
    pub(super) fn script(&self) -> Vec<u8> {
        let (mut command, mut script) = (super::command(false), Vec::new());
        clap_complete::generate(self.shell, &mut command, "gpuprobe", &mut script);
        script
    }
}

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The folder, which is made if it is not there.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl ManArgs {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let why = || format!("cannot write the man pages into {}", self.folder.display());
        fs::create_dir_all(&self.folder).with_context(why)?;
        let mut command = super::command(false).disable_help_subcommand(true);
        command.build();
        for child in shown(&command) {
            let page = Man::new(child.clone());
            page.generate_to(&self.folder).with_context(why)?;
        }
        let page = main_page(command).with_context(why)?;
        fs::write(self.folder.join("gpuprobe.1"), page).with_context(why)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The subcommands that have a man page.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let children = command.get_subcommands();
    children.filter(|child| !child.is_hide_set())
}

/// The man page of the command itself. `Man::render` would fill the statuses into one paragraph.
fn main_page(command: Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    man.render_subcommands_section(&mut page)?;
    status::section().to_writer(&mut page)?;
    man.render_version_section(&mut page)?;
    Ok(page)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_subcommand_has_a_man_page_that_names_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let man = ManArgs {
            folder: folder.path().join("man1"),
        };
        man.run().unwrap();
        let page = |name: &str| {
            let page = fs::read_to_string(man.folder.join(name)).unwrap();
            page.replace('\\', "")
        };
        let command = super::super::command(false);
        let shown: Vec<_> = shown(&command).collect();
        for child in &shown {
            let name = format!("gpuprobe-{}.1", child.get_name());
            let page = page(&name);
            let options = child.get_arguments().filter(|option| !option.is_hide_set());
            for long in options.filter_map(clap::Arg::get_long) {
                assert!(page.contains(&format!("--{long}")), "{name}: {long}");
            }
        }
        let main = page("gpuprobe.1");
        for section in [
            "NAME",
            "OPTIONS",
            "SUBCOMMANDS",
            "\"EXIT STATUS\"",
            "VERSION",
        ] {
            assert!(
                main.contains(&format!("\n.SH {section}\n")),
                "{section}: {main}"
            );
        }
        assert!(!main.contains("EXTRA"), "{main}");
        let pages = fs::read_dir(&man.folder).unwrap().count();
        assert_eq!(pages, 1 + shown.len());
    }

    #[test]
    fn every_shell_has_a_script_that_knows_the_subcommands() {
        for &shell in Shell::value_variants() {
            let script = String::from_utf8(CompletionArgs { shell }.script()).unwrap();
            for word in ["export", "flamegraph", "per-call"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
