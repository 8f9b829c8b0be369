//! Merging of Python frames into native stacks.

use gpuprobe_model::stack::Location;

/// A Python frame to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Its line; `None` if the frame is hidden.
    pub line: Option<Location>,
    /// The frame was entered from native code: the next frame belongs to an outer call of the evaluation loop.
    pub is_entry: bool,
}

/// Inserts Python frames before the native frame of the evaluation loop that runs them: each call of the
/// loop runs the frames up to an entry frame. Both lists are innermost first. Frames without a native
/// frame are appended as outermost.
pub(super) fn merge(
    native: &[Location],
    runs_python: impl Fn(&Location) -> bool,
    python: &[Placed],
) -> Vec<Location> {
    let mut merged = Vec::with_capacity(native.len() + python.len());
    let mut rest = python.iter();
    for location in native {
        if runs_python(location) {
            for frame in rest.by_ref() {
                merged.extend(frame.line);
                if frame.is_entry {
                    break;
                }
            }
        }
        merged.push(*location);
    }
    merged.extend(rest.filter_map(|frame| frame.line));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVAL: u64 = 0x1000;

    fn native(addresses: &[u64]) -> Vec<Location> {
        let location = |&address: &u64| Location {
            address,
            module: None,
            offset: 0,
        };
        addresses.iter().map(location).collect()
    }

    /// The merged stack: addresses of native frames, and negative numbers of Python frames.
    fn merged(addresses: &[u64], python: &[(u32, bool)]) -> Vec<i64> {
        let placed: Vec<_> = python
            .iter()
            .map(|&(number, is_entry)| Placed {
                line: Some(Location::python(number)),
                is_entry,
            })
            .collect();
        let is_eval = |location: &Location| location.address == EVAL;
        merge(&native(addresses), is_eval, &placed)
            .iter()
            .map(|location| match location.python_line() {
                Some(number) => -i64::from(number),
                None => location.address.cast_signed(),
            })
            .collect()
    }

    #[test]
    fn each_call_of_the_evaluation_loop_gets_its_frames() {
        let eval = EVAL.cast_signed();
        let python = [(1, false), (2, true), (3, true), (4, false), (5, true)];
        assert_eq!(
            merged(&[1, EVAL, 2, EVAL, EVAL, 3], &python),
            [1, -1, -2, eval, 2, -3, eval, -4, -5, eval, 3]
        );
        // The native stack was cut, or a part of the loop not recognised.
        assert_eq!(
            merged(&[1, EVAL, 2], &python),
            [1, -1, -2, eval, 2, -3, -4, -5]
        );
        assert_eq!(merged(&[1], &python[..2]), [1, -1, -2]);
        // The Python stack was cut.
        assert_eq!(
            merged(&[1, EVAL, EVAL, 2], &python[..2]),
            [1, -1, -2, eval, eval, 2]
        );
        assert_eq!(merged(&[], &[]), [0i64; 0]);
    }
}
