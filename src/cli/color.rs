//! Colours of text, as they are asked for.

use clap::{Args, ColorChoice};

use super::heading;
use gpuprobe_os::color;

#[derive(Debug, Args)]
pub(super) struct ColorArgs {
    /// Colour text: auto, always or never.
    ///
    /// By default, on a terminal, unless `NO_COLOR` is set or `TERM` is dumb.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t = ColorChoice::Auto,
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = heading::OUTPUT,
        hide_short_help = true
    )]
    color: ColorChoice,
}

impl ColorArgs {
    pub(super) fn choice(&self) -> color::ColorChoice {
        match self.color {
            ColorChoice::Auto => color::ColorChoice::Auto,
            ColorChoice::Always => color::ColorChoice::Always,
            ColorChoice::Never => color::ColorChoice::Never,
        }
    }
}
