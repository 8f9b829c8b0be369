use gpuprobe_os::color::Tone;
use proptest::prelude::*;

use super::*;

fn written(text: &str, columns: Option<usize>, colored: bool) -> String {
    let mut out = Vec::new();
    let layout = Layout {
        columns,
        colored,
        full_names: false,
    };
    // Byte by byte: a writer may be given any part.
    laid_out(layout, &mut out, |out| {
        text.as_bytes()
            .iter()
            .try_for_each(|byte| out.write_all(&[*byte]))
    })
    .unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_longest_words_are_shortened_in_their_middle() {
    let line =
        "held 3.94 GiB by /opt/conda/lib/python3.12/site-packages/model.py:4123 in 12 allocations";
    assert_eq!(
        written(line, Some(60), false),
        "held 3.94 GiB by /opt/conda/l…odel.py:4123 in 12 allocations"
    );
    assert_eq!(written(line, None, false), line);
    assert_eq!(written("a\n\nb\n", Some(80), false), "a\n\nb\n");
}

#[test]
fn colours_take_no_columns() {
    let red = Tone::Bad.paint("LEAK");
    let line = format!("{red} {} 12.00 MiB", Tone::Dim.paint(&"x".repeat(40)));
    let fits = format!("LEAK {} 12.00 MiB", "x".repeat(40));
    assert_eq!(written(&line, Some(60), true), line);
    assert_eq!(written(&line, Some(60), false), fits);
    let cut = written(&line, Some(30), true);
    let dim = Tone::Dim.paint(&format!("{}…{}", "x".repeat(7), "x".repeat(7)));
    assert_eq!(cut, format!("{red} {dim} 12.00 MiB"));
    assert_eq!(width(&unpainted(&cut)), 30);
}

#[test]
fn words_of_too_many_go_from_the_middle() {
    let line = (10..60).map(|number| format!("{number}.25 "));
    let cut = written(line.collect::<String>().trim(), Some(30), false);
    assert_eq!(cut, "10.25 11.25 12.25…58.25 59.25");
}

/// Names, numbers with their units, and what programs may call their functions.
fn word() -> impl Strategy<Value = (String, bool)> {
    let name = prop_oneof!["[a-z_/.:<>]{1,90}", "[線字a-z\u{301}]{1,60}"];
    let number = prop_oneof!["[0-9]{1,6}", "[+-][0-9]{1,3}\\.[0-9]{2}", "\\([0-9]{1,4}"];
    prop_oneof![
        2 => name.prop_map(|name| (name, false)),
        1 => number.prop_map(|number| (number, true)),
    ]
}

proptest! {
    #[test]
    fn a_line_is_never_wider_than_the_page_and_keeps_its_numbers(
        words in proptest::collection::vec((word(), 1_usize..4), 1..9),
        columns in 80_usize..=240,
        tone in prop_oneof![Just(None), Just(Some(Tone::Dim)), Just(Some(Tone::Bad))],
    ) {
        let painted = words.iter().map(|((word, _), gap)| {
            let word = tone.map_or_else(|| word.clone(), |tone| tone.paint(word));
            word + &" ".repeat(*gap)
        });
        let line: String = painted.collect();
        let colored = written(&line, Some(columns), true);
        let plain = written(&line, Some(columns), false);
        prop_assert_eq!(&unpainted(&colored), &plain);
        prop_assert!(width(&plain) <= columns, "{} of {}: {}", width(&plain), columns, plain);
        let kept: Vec<_> = plain.split(' ').filter(|word| !word.is_empty()).collect();
        for ((word, is_number), _) in &words {
            prop_assert!(!is_number || kept.contains(&word.as_str()), "{} in {}", word, plain);
        }
    }

    #[test]
    fn any_text_fits(line in "\\PC{0,300}", columns in 1_usize..=240) {
        let line = line.replace('\u{1b}', "");
        let plain = written(&line, Some(columns), false);
        prop_assert!(width(&plain) <= columns, "{} of {}: {}", width(&plain), columns, plain);
    }
}
