//! Texts that are shown as they are, as far as there is room.

use std::collections::HashMap;

use super::elide;

/// Each of `texts` in at most `columns`, without its middle where it is longer; texts that differ are
/// shown differently (in 12 columns or more). Unlike [`super::fit`], nothing in them is taken for a
/// name.
pub fn cut(texts: &[&str], columns: Option<usize>) -> Vec<String> {
    let Some(columns) = columns else {
        return texts.iter().map(|text| (*text).to_owned()).collect();
    };
    let mut shown: Vec<_> = texts
        .iter()
        .map(|text| elide::middle(text, columns))
        .collect();
    for group in alike(texts, &shown) {
        let whole: Vec<_> = group.iter().map(|&index| texts[index]).collect();
        for (index, text) in group.into_iter().zip(elide::windows(&whole, columns)) {
            shown[index] = text;
        }
    }
    for group in alike(texts, &shown) {
        // Where they differ is too far apart to be shown.
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for index in group {
            let next = numbers.len() + 1;
            let number = *numbers.entry(texts[index]).or_insert(next);
            let mark = format!("~{number}");
            let room = columns.saturating_sub(mark.len());
            shown[index] = elide::middle(&shown[index], room) + &mark;
        }
    }
    shown
}

/// The indices of texts that are shown alike although they differ, by what is shown of them.
fn alike(texts: &[&str], shown: &[String]) -> Vec<Vec<usize>> {
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, text) in shown.iter().enumerate() {
        groups.entry(text).or_default().push(index);
    }
    let differ = |group: &Vec<usize>| group.iter().any(|&index| texts[index] != texts[group[0]]);
    let mut groups: Vec<_> = groups.into_values().filter(differ).collect();
    groups.sort_unstable();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_are_shown_differently() {
        let texts = [
            "pool.c:58 grow < b.c:12 train_step < c.c:1 main",
            "pool.c:58 grow < b.c:13 train_step < c.c:1 main",
            "pool.c:58 grow",
        ];
        for columns in 12..60 {
            let shown = cut(&texts, Some(columns));
            assert!(
                shown.iter().all(|text| text.chars().count() <= columns),
                "{shown:?}"
            );
            assert_ne!(shown[0], shown[1], "{columns}");
        }
        assert_eq!(cut(&texts, None), texts);
        let same = cut(&[texts[0], texts[0]], Some(20));
        assert_eq!(same[0], same[1]);
    }
}
