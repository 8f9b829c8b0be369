//! Source lines around the places of a call site.

use std::collections::HashMap;

use gpuprobe_model::stack::{Frame, Language};
use gpuprobe_model::text::printable;
use gpuprobe_os::color::Tone;
use gpuprobe_report::memleak::SiteReport;
use gpuprobe_stacks::symbols::{SourceExcerpt, SourcePlace};
use ratatui_core::text::Line;

use super::look::Theme;

/// Places of which lines are kept.
const MAX_KEPT: usize = 64;

/// Lines that were read.
#[derive(Debug, Default)]
pub(crate) struct SourceTexts {
    /// Numbers and texts by place; none while they are asked for, and where the file cannot be read.
    known: HashMap<SourcePlace, Vec<(u32, String)>>,
}

impl SourceTexts {
    /// The places among `places` that were not asked for; they are from now on.
    pub(crate) fn want(&mut self, mut places: Vec<SourcePlace>) -> Vec<SourcePlace> {
        places.retain(|place| !self.known.contains_key(place));
        if self.known.len() + places.len() > MAX_KEPT {
            self.known.clear();
        }
        for place in &places {
            self.known.insert(place.clone(), Vec::new());
        }
        places
    }

    /// Lines that have arrived.
    pub(crate) fn add(&mut self, excerpt: SourceExcerpt) {
        self.known.insert(excerpt.place, excerpt.lines);
    }

    /// The lines around the places of `site`, as far as they are known.
    pub(crate) fn lines(&self, pid: u32, site: &SiteReport, theme: Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        for place in places(pid, site) {
            let texts = self.known.get(&place).filter(|texts| !texts.is_empty());
            for (number, text) in texts.into_iter().flatten() {
                let (mark, tone) = match *number == place.line {
                    true => ('>', Tone::Heading),
                    false => (' ', Tone::Dim),
                };
                let text = format!("{mark} {number:>5}  {}", printable(text));
                lines.push(Line::styled(text, theme.tone(tone)));
            }
            if texts.is_some() {
                let title = format!("{}:{}", printable(&place.file), place.line);
                let begin = lines.len() - texts.map_or(0, Vec::len);
                lines.insert(begin, Line::styled(title, theme.tone(Tone::Heading)));
                lines.insert(begin, Line::default());
            }
        }
        lines
    }
}

/// The lines of a call site: the one in its label, and that of the innermost Python frame.
pub(crate) fn places(pid: u32, site: &SiteReport) -> Vec<SourcePlace> {
    let labels = |frame: &&Frame| {
        let name = frame
            .file
            .as_deref()
            .and_then(|file| file.rsplit('/').next());
        let begin = name
            .zip(frame.line)
            .map(|(name, line)| format!("{name}:{line}"));
        begin.is_some_and(|begin| {
            let rest = site.label.strip_prefix(&begin);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let is_python = |frame: &&Frame| frame.language == Language::Python;
    let labelled = site.stack.iter().find(labels);
    let python = site.stack.iter().find(is_python);
    let mut places: Vec<SourcePlace> = Vec::new();
    for frame in labelled.into_iter().chain(python) {
        if let (Some(file), Some(line)) = (&frame.file, frame.line) {
            let place = SourcePlace {
                pid,
                file: file.clone(),
                line,
            };
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}
