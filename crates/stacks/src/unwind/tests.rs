use gpuprobe_model::stack::ModuleId;

use super::*;

const STACK: u64 = 0x1000;
/// Functions: in a file, and in no file.
const FILE: u64 = 0x40_0000;
const MADE: u64 = 0x50_0100;

/// A process with code of one megabyte at [`FILE`] and [`MADE`].
#[derive(Default)]
struct Code {
    rules: Vec<(u64, Arc<UnwindRule>)>,
    /// Addresses in no file of frames that have made a call.
    asked: Vec<u64>,
}

impl ProcessCode for Code {
    fn place(&mut self, address: u64, lookup: u64) -> Option<Location> {
        let module = match lookup >> 20 {
            4 => Some(ModuleId(1)),
            5 => None,
            _ => return None,
        };
        Some(Location {
            address,
            module,
            offset: 0,
        })
    }

    fn rule(&mut self, lookup: u64, has_called: bool) -> Option<Arc<UnwindRule>> {
        if has_called && lookup >> 20 == 5 {
            self.asked.push(lookup);
        }
        let found = self.rules.iter().find(|(at, _)| *at == lookup);
        found.map(|(_, rule)| Arc::clone(rule))
    }
}

/// Addresses and slots from `ip` on a stack of these words, and whether the stack is complete.
fn unwound(code: &mut Code, ip: u64, bp: u64, words: &[u64]) -> (Vec<u64>, Vec<u64>, bool) {
    let bytes: Vec<u8> = words.iter().copied().flat_map(u64::to_le_bytes).collect();
    let copy = StackCopy {
        ip,
        sp: STACK,
        bp,
        bytes: &bytes,
        replaced: &[],
    };
    let Unwound { stack, slots } = unwind(code, &copy);
    let addresses = stack.locations.iter().map(|location| location.address);
    (addresses.collect(), slots, stack.is_complete)
}

fn fixed(bytes: i64) -> Arc<UnwindRule> {
    Arc::new(UnwindRule::of_fixed_frame(bytes))
}

#[test]
fn frames_without_rules_are_found_by_frame_pointers() {
    let [ip, one, two, three] = [0, 1, 2, 3].map(|n| FILE + 0x100 * n);
    // The return address, 3 words, a frame pointer and its return address, 2 words, the outermost.
    let words = [one, 0, 0, 0, STACK + 0x40, two, 0, 0, 0, three];
    let bp = STACK + 0x20;
    let slots = vec![STACK, STACK + 0x28, STACK + 0x48];
    let unwound = |ip, bp, words: &[u64]| unwound(&mut Code::default(), ip, bp, words);
    let expected = (vec![ip, one, two, three], slots.clone(), true);
    assert_eq!(unwound(ip, bp, &words), expected);
    let begin = (vec![ip, one], vec![STACK], false);
    // Not aligned, and below the stack pointer.
    assert_eq!(unwound(ip, bp + 4, &words), begin);
    assert_eq!(unwound(ip, STACK, &words), begin);
    assert_eq!(unwound(ip, 0, &words), (vec![ip, one], vec![STACK], true));
    // At the stack pointer of the caller.
    let near = [one, 0, two, 0];
    let expected = (vec![ip, one, two], vec![STACK, STACK + 0x10], true);
    assert_eq!(unwound(ip, STACK + 8, &near), expected);
    // The end of the copy, and an address in no mapping.
    let cut = (vec![ip, one, two], slots[..2].to_vec(), false);
    assert_eq!(unwound(ip, bp, &words[..9]), cut);
    let elsewhere = [one, 0, 0, 0, STACK + 0x40, 0x77];
    assert_eq!(unwound(ip, bp, &elsewhere), begin);
    // A return address of zero is the end, but not on top of the stack.
    let zero = [one, 0, 0, 0, STACK + 0x40, 0];
    assert_eq!(unwound(ip, bp, &zero), (vec![ip, one], vec![STACK], true));
    let pushed = [0, 0, 0, 0, STACK + 0x40, two, 0, 0, 0, three];
    let expected = (vec![ip, two, three], slots[1..].to_vec(), true);
    assert_eq!(unwound(ip, bp, &pushed), expected);
    let pushed = [0x77, 0, 0, 0, STACK + 0x40, two, 0, 0, 0, three];
    assert_eq!(unwound(ip, bp, &pushed), expected);
    // Only in a file a frame pointer of zero marks the outermost frame.
    let made = [MADE, 0, 0, 0, 0, MADE];
    let expected = (vec![ip, MADE, MADE], vec![STACK, STACK + 0x28], false);
    assert_eq!(unwound(ip, bp, &made), expected);
}

#[test]
fn callers_in_no_file_have_made_a_call() {
    let mut code = Code::default();
    let [ip, caller] = [MADE, MADE + 0x100];
    code.rules.push((caller - 1, fixed(16)));
    code.rules.push((FILE - 1, fixed(1 << 20)));
    let words = [caller, 0, FILE, 0];
    let (addresses, slots, is_complete) = unwound(&mut code, ip, 0, &words);
    assert_eq!(addresses, [ip, caller]);
    assert_eq!((slots, is_complete), (vec![STACK], false));
    assert_eq!(code.asked, [caller - 1]);
    // Sixteen bytes above its stack pointer, the return address below.
    let words = [caller, 0, FILE + 1, 0];
    let (addresses, slots, _) = unwound(&mut code, ip, 0, &words);
    assert_eq!(addresses, [ip, caller, FILE + 1]);
    assert_eq!(slots, [STACK, STACK + 16]);
    code.asked.clear();
    let (addresses, ..) = unwound(&mut code, FILE, 0, &[FILE + 5, 0]);
    assert_eq!(addresses, [FILE, FILE + 5]);
    assert!(code.asked.is_empty());
}

#[test]
fn an_interrupted_function_is_at_its_address_and_on_another_stack() -> serde_json::Result<()> {
    let signal = |slot: i64| {
        serde_json::from_value(serde_json::json!({
            "cfa": {"Register": [7, 0]},
            "registers": [[16, {"At": {"Register": [17, slot]}}]],
            "is_signal_frame": true,
        }))
    };
    let mut code = Code::default();
    code.rules.push((FILE, Arc::new(signal(8)?)));
    let words = [1, MADE + 0x10, 0, 0];
    // Its address is one more, for it is looked up as that of a call; its stack pointer need not be higher.
    let expected = (vec![FILE, MADE + 0x11], vec![STACK + 8], false);
    assert_eq!(unwound(&mut code, FILE, 1, &words), expected);
    assert!(code.asked.is_empty(), "it has made no call");
    code.rules.push((MADE + 0x10, fixed(16)));
    let (addresses, ..) = unwound(&mut code, FILE, 1, &words);
    assert_eq!(addresses, [FILE, MADE + 0x11, MADE + 0x10]);
    Ok(())
}

#[test]
fn a_stack_has_a_limited_depth_and_grows_downwards() {
    let mut code = Code::default();
    code.rules.push((FILE, fixed(8)));
    code.rules.push((FILE + 4, fixed(8)));
    let words = vec![FILE + 5; 2 * DEPTH];
    let (addresses, slots, is_complete) = unwound(&mut code, FILE, 0, &words);
    assert_eq!((addresses.len(), slots.len()), (DEPTH, DEPTH - 1));
    assert!(!is_complete);
    // A rule whose frame is empty would lead nowhere.
    code.rules[1].1 = fixed(0);
    let (addresses, ..) = unwound(&mut code, FILE, 0, &words);
    assert_eq!(addresses, [FILE, FILE + 5]);
}
