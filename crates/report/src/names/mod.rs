//! Names of functions and kernels, as short as they have to be and still told apart.

/// Without what every such name has.
pub fn simplify(name: &str) -> String {
    name.to_owned()
}

/// Each of `names` in at most `columns` characters, where names differ also what is shown of them.
pub fn fit(names: &[&str], columns: Option<usize>) -> Vec<String> {
    let columns = columns.unwrap_or(usize::MAX);
    let fit = |name: &&str| {
        let name: Vec<char> = simplify(name).chars().collect();
        if name.len() <= columns {
            return name.into_iter().collect();
        }
        let kept = columns.saturating_sub(3);
        let (head, tail) = (kept - kept / 2, kept / 2);
        let head = name[..head].iter().collect::<String>();
        head + "..." + &name[name.len() - tail..].iter().collect::<String>()
    };
    names.iter().map(fit).collect()
}
