//! Names of kernels and functions, and what symbols tell.

mod debug_file;
pub(crate) mod demangle;
mod host_files;
pub(crate) mod perf_map;
mod resolve;
mod service;
mod source;
mod stub;
pub(crate) mod variable;

use gpuprobe_model::stack::{Frame, Location};

pub use demangle::demangle;
pub use host_files::HostFiles;
pub use resolve::Symbolizer;
pub use service::Service;
pub use source::Files;

/// A location whose functions are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The process.
    pub pid: u32,
    /// The location in it.
    pub location: Location,
    /// It is the first of its stack. Others are where a call returns to, which may be the beginning
    /// of another function or line.
    pub is_innermost: bool,
}

/// The functions at a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The location that was asked about.
    pub request: Request,
    /// Innermost first; never empty.
    pub frames: Vec<Frame>,
}

/// Whether `name` can be what a compiler called a kernel. What is read through an undocumented
/// pointer may be anything.
pub fn is_plausible(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_$.@-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || "_$.".contains(c))
        && name.chars().all(allowed)
}

/// The bare name of a function that is demangled: without namespaces, result, template arguments
/// and parameters.
pub fn base_name(name: &str) -> &str {
    let mut depth = 0;
    let mut begin = 0;
    for (position, c) in name.char_indices() {
        match c {
            '<' | '(' if depth == 0 && position > begin => {
                let rest = &name[position..];
                // The end, unless this is inside of the name of a namespace or of a result.
                let is_inside = match c {
                    '(' => rest.starts_with("(anonymous namespace)"),
                    _ => closing(rest).is_some_and(|end| rest[end..].starts_with("::")),
                };
                if !is_inside {
                    return &name[begin..position];
                }
                depth += 1;
            }
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ':' | ' ' if depth == 0 => begin = position + 1,
            _ => {}
        }
    }
    &name[begin..]
}

/// Where what begins with an angle bracket ends.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (position, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(position + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names() {
        for (name, bare) in [
            ("k1(float*, int)", "k1"),
            ("void k2<float>(float*, int)", "k2"),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("void a::b<c::d, (e)1>::f<int>(g<h>)", "f"),
            ("void (anonymous namespace)::k<int>(int)", "k"),
            ("a::(anonymous namespace)::k(int)", "k"),
            (
                "void at::native::vectorized<4, at::F<float>, std::array<char*, 2ul> >(int)",
                "vectorized",
            ),
            ("", ""),
        ] {
            assert_eq!(base_name(name), bare, "{name}");
        }
    }

    #[test]
    fn plausible_names() {
        for name in ["_Z2k1Pfi", "sm90_xmma_gemm", "wrapped_add.1", "$kernel"] {
            assert!(is_plausible(name), "{name}");
        }
        for name in ["", "1abc", "a b", "a\u{1b}[0m", "\u{fffd}", "naïve", "a/b"] {
            assert!(!is_plausible(name), "{name}");
        }
    }
}
