//! What identifies a call site: in a report, in an incident, between two runs and between two builds.
//!
//! In Python programs the lines of the user's files count; without any, all Python lines; without
//! Python, the whole stack. Memory of the GPU and of the host is never one site, nor is what an
//! allocator took for its pool and what it did not.

use std::hash::{DefaultHasher, Hash, Hasher};

use gpuprobe_cuda::Belongs;
use gpuprobe_model::stack::Frame;
use gpuprobe_stacks::allocators::down_to_start;
use gpuprobe_stacks::cuda::{file_name, is_own};
use gpuprobe_stacks::owners::stem;

use crate::fold::{FrameOrigin, is_python};

/// A frame, by a hash of its names, so that stacks are quickly compared.
pub type Place = (FrameOrigin, u64);

/// Identifies a call site: a hash of its side, of whether an allocator took the memory for a pool of its own, and of
/// its frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SiteKey(u64);

impl SiteKey {
    /// Key that all stacks with the same Python lines have in common; `None` without Python.
    pub fn of_lines(side: Belongs, is_pooled: bool, places: &[Place]) -> Option<Self> {
        let telling = telling(places, |place| place.0);
        let path: Vec<_> = telling.map(|place| place.1).collect();
        (!path.is_empty()).then(|| Self(hash((side, is_pooled, path))))
    }

    /// Key of a stack in processes that run the same files.
    pub fn of(side: Belongs, is_pooled: bool, frames: &[Frame]) -> Self {
        let places: Vec<_> = frames.iter().map(place).collect();
        let lines = Self::of_lines(side, is_pooled, &places);
        lines.unwrap_or_else(|| Self(hash((side, is_pooled, places))))
    }

    /// Key of a stack by a text that tells it from all others.
    pub fn of_text(text: &[String]) -> Self {
        Self(hash(text))
    }

    /// Key that stays from build to build: neither addresses nor lines count. Of a pool is what an
    /// allocator handed out.
    pub fn between_builds(is_pooled: bool, api: &str, frames: &[Frame]) -> Self {
        let mut path: Vec<_> = telling(frames, FrameOrigin::of).map(build_place).collect();
        if path.is_empty() {
            let shown = down_to_start(frames, |frame| &frame.function);
            let others = frames[..shown].iter().filter(|frame| !is_own(frame));
            path.extend(others.map(build_place));
        }
        if path.is_empty() {
            return Self(hash((is_pooled, api)));
        }
        Self(hash((is_pooled, path)))
    }
}

/// The Python frames that identify a call site: the user's lines and markers; without user lines,
/// all.
fn telling<T>(stack: &[T], origin: impl Fn(&T) -> FrameOrigin) -> impl Iterator<Item = &T> {
    let has_user = stack.iter().any(|one| origin(one) == FrameOrigin::User);
    stack.iter().filter(move |one| match origin(one) {
        FrameOrigin::User | FrameOrigin::Marker => true,
        FrameOrigin::Library => !has_user,
        FrameOrigin::Native => false,
    })
}

/// A frame among those of the same files.
pub fn place(frame: &Frame) -> Place {
    let module = (!is_python(frame)).then_some(&frame.module);
    let names = (&frame.function, &frame.file, frame.line, module);
    (FrameOrigin::of(frame), hash(names))
}

/// The function of a frame and the file that it is in, without what changes with every build.
fn build_place(frame: &Frame) -> u64 {
    let file = match frame.module.as_str() {
        "" => file_name(frame.file.as_deref().unwrap_or_default()),
        module => stem(file_name(module)),
    };
    // Without a name, the function is a place in the file or an address.
    hash((frame.is_named().then_some(&frame.function), file))
}

fn hash(names: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    names.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::{Language, Location, bare_frame};

    fn native(function: &str, module: &str) -> Frame {
        Frame {
            function: function.to_owned(),
            module: module.to_owned(),
            ..bare_frame(&Location::python(0))
        }
    }

    fn python(function: &str, file: Option<&str>, line: u32) -> Frame {
        Frame {
            file: file.map(str::to_owned),
            line: file.map(|_| line),
            language: Language::Python,
            ..native(function, "")
        }
    }

    const USER: Option<&str> = Some("/home/ada/train.py");

    #[test]
    fn user_lines_identify_a_call_site_or_else_all_lines() {
        let key_of = |frames: &[Frame]| {
            let places: Vec<_> = frames.iter().map(place).collect();
            SiteKey::of_lines(Belongs::Gpu, false, &places)
        };
        let line = |function: &str, file| python(function, file, 3);
        let [step, main] = ["step", "<module>"].map(|function| line(function, USER));
        let library = Some("/v/site-packages/torch/nn/x.py");
        let [linear, conv] = ["Linear.forward", "Conv.forward"].map(|name| line(name, library));
        let cut = line("[cut: 128 Python frames]", None);
        let native = native("_PyEval_EvalFrameDefault", "/usr/bin/python3");
        let user = key_of(&[linear.clone(), step.clone(), native.clone(), main.clone()]);
        assert_eq!(
            user,
            key_of(&[conv.clone(), native.clone(), step.clone(), main.clone()])
        );
        assert_ne!(user, key_of(&[main, step.clone()]), "the order counts");
        assert_ne!(key_of(&[step.clone(), cut.clone()]), key_of(&[step]));
        // The missing frames may have been the user's.
        let cut = [&linear, &conv].map(|one| key_of(&[one.clone(), cut.clone()]));
        assert_ne!(cut[0], cut[1]);
        assert_ne!(key_of(&[linear]), key_of(&[conv]));
        assert_eq!(key_of(&[native]), None);
    }

    #[test]
    fn what_changes_with_a_build_does_not_count() {
        let key = |stack: &[Frame]| SiteKey::between_builds(false, "cudaMalloc", stack);
        let start = native("_start", "/srv/app");
        let main = native("main", "/srv/app");
        let earlier = [
            native("libx.so.1+0x1a3", "/x/libx.so.1"),
            main.clone(),
            start.clone(),
        ];
        let later = [
            native("cudaMalloc", "/x/libcudart.so.12"),
            native("libx.so.2+0x99", "/y/libx.so.2"),
            main.clone(),
        ];
        assert_eq!(key(&earlier), key(&later));
        assert_ne!(key(&earlier), key(&[native("grow", "/x/libx.so.1"), main]));
        let line = |line, native| [native, python("step", USER, line)];
        let (zeros, ones) = (
            native("at::zeros", "/libtorch.so"),
            native("at::ones", "/libtorch.so"),
        );
        assert_eq!(key(&line(41, zeros.clone())), key(&line(57, ones)));
        assert_ne!(key(&line(41, zeros.clone())), key(&[zeros]));
        let tensor = SiteKey::between_builds(true, "cudaMalloc", &[]);
        assert_ne!(key(&[]), tensor);
    }
}
