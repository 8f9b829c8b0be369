//! Symbolisation: frames of locations, names of kernels, sizes of variables.

mod debug_file;
pub(crate) mod debug_info;
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
pub use service::{Service, SymbolMessage};
pub use source::ProcessFiles;

/// A location to symbolise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolRequest {
    /// Process id on the host.
    pub pid: u32,
    /// The location to symbolise.
    pub location: Location,
    /// It is the innermost of its stack. Others are return addresses, which may be the beginning of
    /// another function or line.
    pub is_innermost: bool,
}

/// The frames at a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedFrames {
    /// The request that this answers.
    pub request: SymbolRequest,
    /// Frames, innermost first; never empty.
    pub frames: Vec<Frame>,
}

/// Whether `name` can be a compiler's name of a kernel. Names read through an undocumented pointer may
/// be any bytes.
pub fn is_plausible(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_$.@-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || "_$.".contains(c))
        && name.chars().all(allowed)
}

/// The base name of a demangled function: without namespaces, return type, template arguments and
/// parameters.
pub fn base_name(name: &str) -> &str {
    let (mut depth, mut begin, mut end) = (0, 0, None);
    for (position, c) in name.char_indices() {
        let is_bare = depth == 0;
        match c {
            '<' | '(' => {
                depth += 1;
                // `<lambda()>` and `(anonymous namespace)` are names themselves.
                if is_bare && position > begin {
                    end.get_or_insert(position);
                    if c == '(' {
                        break;
                    }
                }
            }
            '>' | ')' => depth -= 1,
            // What came before was a namespace or a return type.
            ':' | ' ' if is_bare => (begin, end) = (position + 1, None),
            _ => {}
        }
    }
    &name[begin..end.unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_names_of_demangled_functions() {
        for (name, bare) in [
            ("k1(float*, int)", "k1"),
            ("void k2<float>(float*, int)", "k2"),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("void a::b<c::d, (e)1>::f<int>(g<h>)", "f"),
            ("void (anonymous namespace)::k<int>(int)", "k"),
            ("a::(anonymous namespace)::k(int)", "k"),
            ("(anonymous namespace)::k(int)", "k"),
            ("a::<lambda()>(int)", "<lambda()>"),
            ("a<b<c> >::f<d>", "f"),
            ("int f", "f"),
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
