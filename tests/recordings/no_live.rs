//! A build without live tracing: one message says so.

use super::gpuprobe;

#[test]
fn live_commands_are_refused_in_one_line() {
    for words in [
        &["--memleak"][..],
        &["--memleak", "--pid", "1"],
        &["--cudatrace", "--", "true", "--help"],
        &["record", "--output", "run.sqlite"],
        &["doctor"],
        &[],
    ] {
        let output = gpuprobe(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("this build has no live tracing"), "{said}");
    }
}
