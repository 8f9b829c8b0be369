//! Source lines around a place, for the screens.

use std::sync::Arc;

use gpuprobe_stacks::symbols::{ProcessFiles, SourceExcerpt, SourcePlace};

use super::StackState;

impl StackState {
    /// Requests the lines around `place`, which are read with the permissions of the user of its process.
    pub(in crate::live) fn request_excerpt(&self, place: SourcePlace) {
        let pid = place.pid;
        let kept = self.files.get(&pid);
        let kept = kept.filter(|files| files.are_of_its_user(pid)).cloned();
        let files = match kept {
            Some(files) => files,
            None => match ProcessFiles::of(pid) {
                Ok(files) => Arc::new(files),
                // It has ended: its files are not known any more.
                Err(_) => return,
            },
        };
        self.service.request_excerpt(place, files);
    }

    /// The excerpts read since the last call.
    pub(in crate::live) fn excerpts(&self) -> impl Iterator<Item = SourceExcerpt> {
        self.service.excerpts()
    }
}
