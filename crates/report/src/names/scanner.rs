//! Writes a demangled name again, without what is boilerplate in it, in one pass.
//!
//! Names come from traced programs, so nothing is assumed about them: a bracket may lack its partner,
//! and brackets that are nested too deeply are text.

/// Levels of template arguments that are written. The first says what a kernel does, the second with
/// which types: `vectorized_elementwise_kernel<4, BinaryFunctor<float, float, float, MulFunctor<…>>>`.
const MAX_DEPTH: usize = 2;
/// Limit on nested brackets: the scanner is recursive.
const MAX_NESTING: usize = 64;
/// Function names shorter than this are written with the name before them: `native::copy`.
const SHORT: usize = 8;

/// Templates that are written as one of their arguments, by index: the computation, which they adapt
/// to a kernel of `PyTorch`.
const ADAPTERS: [(&str, usize); 5] = [
    ("gpu_kernel_impl", 0),
    ("gpu_kernel_impl_nocast", 0),
    ("gpu_index_kernel", 0),
    ("func_wrapper_t", 1),
    ("ReduceOp", 1),
];
/// Template arguments that say nothing where they are not the first: defaults of the standard library,
/// and how kernels of `PyTorch` find their operands.
const BOILERPLATE: [&str; 7] = [
    "allocator",
    "char_traits",
    "default_delete",
    "array",
    "Array",
    "OffsetCalculator",
    "TrivialOffsetCalculator",
];
/// Other spellings of tools: anonymous namespaces, and what nsys writes.
const SPELLINGS: [(&str, &str); 6] = [
    ("(anonymous namespace)::", ""),
    ("<unnamed>::", ""),
    ("{anonymous}::", ""),
    ("operator ()", "operator()"),
    ("(bool)0", "false"),
    ("(bool)1", "true"),
];
const QUALIFIERS: [&str; 7] = [" const", " volatile", " noexcept", " &&", " &", "&&", "&"];
/// `name` without boilerplate, with all `namespaces` or only those that say something.
pub(super) fn scan(name: &str, namespaces: bool) -> String {
    let normalised = normalised(name);
    let mut scanner = NameScanner {
        name: &normalised,
        namespaces,
        ..NameScanner::default()
    };
    scanner.sequence();
    // A name that was cut before its parameters has its result type.
    match scanner.out.strip_prefix("void ").unwrap_or(&scanner.out) {
        "" => name.to_owned(),
        out => out.to_owned(),
    }
}

/// Reads a name and writes what is shown of it.
#[derive(Default)]
struct NameScanner<'a> {
    name: &'a str,
    /// Position in `name`.
    at: usize,
    out: String,
    /// The closing brackets that are expected, the innermost last.
    open: Vec<char>,
    /// Levels of template arguments at this position.
    depth: usize,
    namespaces: bool,
}

/// A component of a qualified name.
struct Component<'a> {
    /// The identifier; empty for a lambda and other brackets.
    name: &'a str,
    /// Whether it has template arguments or parameters.
    has_list: bool,
}

impl Component<'_> {
    fn is_lambda(&self) -> bool {
        self.name.is_empty() || self.name.starts_with('\'')
    }

    /// Whether it is a class or a function, not a namespace.
    fn owns(&self, member: &str) -> bool {
        let is_type =
            self.name.starts_with(char::is_uppercase) && self.name.contains(char::is_lowercase);
        let is_same = self.name == member.trim_start_matches('~');
        is_type || is_same || self.has_list || self.is_lambda()
    }
}

impl<'a> NameScanner<'a> {
    fn rest(&self) -> &'a str {
        &self.name[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Reads `text`, if it is next.
    fn skip(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        self.at += if is_next { text.len() } else { 0 };
        is_next
    }

    fn is_inside(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether brackets begin here with `open`.
    fn opens(&self, open: char) -> bool {
        self.peek() == Some(open) && self.open.len() < MAX_NESTING
    }

    /// Whether `c` ends an item of the brackets that are open.
    fn ends(&self, c: char) -> bool {
        match c {
            ',' => self.is_inside(),
            // Elsewhere it is a comparison or an arrow.
            '>' => self.open.last() == Some(&c) && !self.name[..self.at].ends_with('-'),
            ')' | ']' | '}' => self.open.contains(&c),
            _ => false,
        }
    }

    /// Whether a component of a qualified name begins at `at`.
    fn is_component(&self, at: usize) -> bool {
        let rest = self.name.get(at..).unwrap_or_default();
        let has_room = self.open.len() < MAX_NESTING;
        match rest.chars().next() {
            Some('{' | '<') => has_room,
            Some(c) => !ends_identifier(c) && !rest.starts_with("::"),
            None => false,
        }
    }

    /// Whether the qualified name has more components.
    fn goes_on(&self) -> bool {
        self.rest().starts_with("::") && self.is_component(self.at + 2)
    }

    /// Writes an item of a list, or the whole: qualified names, and the text and brackets between
    /// them. The result type before a function is left out.
    fn sequence(&mut self) {
        let start = self.out.len();
        let mut function = None;
        let mut is_declaration = true;
        while let Some(c) = self.peek().filter(|&c| !self.ends(c)) {
            let before = self.out.len();
            if self.goes_on() || self.is_component(self.at) {
                function = self.path().then_some(before);
                continue;
            }
            if let Some(close) = closing(c).filter(|_| self.opens(c)) {
                self.brackets(close, None);
                // `4` of `(int)4`.
                let rest = self.rest();
                let digits = rest.strip_prefix('-').unwrap_or(rest);
                let is_cast = before == start && self.is_inside();
                if is_cast && digits.starts_with(|c: char| c.is_ascii_digit()) {
                    self.out.truncate(start);
                }
                function = None;
                continue;
            }
            let is_pointer = "*&".contains(c);
            if is_pointer && self.is_inside() && self.out[start..].ends_with(' ') {
                self.out.pop();
            }
            if c != ' ' || before > start {
                self.out.push(c);
            }
            self.at += c.len_utf8();
            function = function.filter(|_| c == ' ');
            is_declaration &= is_pointer || c == ' ';
        }
        if let Some(function) = function.filter(|_| is_declaration) {
            self.out.drain(start..function);
        }
        let end = start + self.out[start..].trim_end_matches(' ').len();
        self.out.truncate(end);
    }

    /// Writes brackets that end with `close`, and the items between them, or the item `only` alone.
    fn brackets(&mut self, close: char, only: Option<usize>) {
        let open = self.peek().filter(|_| only.is_none());
        self.out.extend(open);
        self.at += 1;
        self.open.push(close);
        for index in 0.. {
            let before = self.out.len();
            if index > 0 && only.is_none() {
                self.out.push_str(", ");
            }
            let item = self.out.len();
            self.sequence();
            let is_shown = match only {
                Some(only) => index == only,
                None => index == 0 || !is_boilerplate(&self.out[item..]),
            };
            if !is_shown {
                self.out.truncate(before);
            }
            if !self.skip(",") {
                break;
            }
        }
        self.open.pop();
        // A name that was cut lacks it.
        if self.peek() == Some(close) {
            self.out.extend(open.map(|_| close));
            self.at += 1;
        }
    }

    /// Writes a qualified name, without namespaces: `B<c>::e` of `a::B<c>::e(d)`. Whether it is a
    /// function; within brackets, whether it is in one.
    fn path(&mut self) -> bool {
        let start = self.out.len();
        let mut owner: Option<Component<'a>> = None;
        let mut is_function = false;
        self.skip("::");
        loop {
            let before = self.out.len();
            if owner.is_some() {
                self.out.push_str("::");
            }
            let at = self.out.len();
            let name = self.component();
            if let Some(argument) = self.adapted(name) {
                self.out.truncate(start);
                self.brackets('>', Some(argument));
                let end = self.out.len();
                self.sequence();
                self.out.truncate(end);
                return true;
            }
            let has_arguments = self.arguments(name);
            let has_parameters = self.parameters(name);
            let goes_on = self.goes_on();
            is_function |= has_parameters && (goes_on || !self.is_inside());
            let is_in_lambda = owner.as_ref().is_some_and(Component::is_lambda);
            if name == "operator()" && (goes_on || is_in_lambda) {
                self.out.truncate(before);
            } else {
                let component = Component {
                    name,
                    has_list: has_arguments || has_parameters,
                };
                if owner.is_some_and(|owner| !self.keeps(&owner, &component)) {
                    self.out.drain(start..at);
                }
                owner = Some(component);
            }
            if !goes_on {
                return is_function;
            }
            self.at += 2;
        }
    }

    /// Whether a component is written with the one before it.
    fn keeps(&self, owner: &Component<'_>, component: &Component<'_>) -> bool {
        let name = component.name;
        let next = self.rest().strip_prefix("::");
        let is_last = next.is_none_or(|next| next.starts_with(['{', '[', '\'']));
        self.namespaces
            || component.is_lambda()
            || name.starts_with("operator")
            || owner.owns(name)
            || name.len() < SHORT && !self.is_inside() && is_last
    }

    /// Which argument stands for the template `name`, if that adapts it for a kernel.
    fn adapted(&self, name: &str) -> Option<usize> {
        let is_argument = self.depth > 0 && self.opens('<');
        let adapter = |(adapter, _): &&(&str, usize)| is_argument && *adapter == name;
        ADAPTERS.iter().find(adapter).map(|(_, argument)| *argument)
    }

    /// Writes a component without its lists, and returns its identifier.
    fn component(&mut self) -> &'a str {
        match self.peek() {
            Some('{') => self.brackets('}', None),
            Some('<') => self.brackets('>', None),
            _ => return self.identifier(),
        }
        ""
    }

    fn identifier(&mut self) -> &'a str {
        let rest = self.rest();
        let end = |(at, c): &(usize, char)| ends_identifier(*c) || rest[*at..].starts_with("::");
        let plain = || {
            rest.char_indices()
                .find(end)
                .map_or(rest.len(), |(at, _)| at)
        };
        let length = operator(rest).unwrap_or_else(plain);
        self.at += length;
        let name = &rest[..length];
        self.out.push_str(name);
        name
    }

    /// Writes template arguments, if there are any.
    fn arguments(&mut self, name: &str) -> bool {
        if name.starts_with("operator") && self.rest().starts_with(" <") {
            self.at += 1;
        }
        if !self.opens('<') {
            return false;
        }
        let open = self.out.len();
        self.depth += 1;
        self.brackets('>', None);
        self.depth -= 1;
        if self.depth >= MAX_DEPTH {
            self.out.truncate(open);
            self.out.push_str("<…>");
        }
        true
    }

    /// Reads parameters and qualifiers, if there are any. Those of a type or a lambda are written.
    fn parameters(&mut self, name: &str) -> bool {
        let end = self.out.len();
        if !self.opens('(') {
            return false;
        }
        self.brackets(')', None);
        while QUALIFIERS.iter().any(|word| self.skip(word)) {}
        if (self.goes_on() || !self.is_inside()) && !name.starts_with('\'') {
            self.out.truncate(end);
        }
        true
    }
}

fn closing(open: char) -> Option<char> {
    match open {
        '<' => Some('>'),
        '(' => Some(')'),
        '{' => Some('}'),
        _ => None,
    }
}

fn ends_identifier(c: char) -> bool {
    "<>()[]{},*&".contains(c) || c.is_whitespace()
}

fn is_boilerplate(argument: &str) -> bool {
    let path = argument.split('<').next().unwrap_or_default();
    let name = path.rsplit("::").next().unwrap_or_default();
    BOILERPLATE.contains(&name)
}

/// Length of the operator at the beginning of `text`.
fn operator(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("operator")?;
    let after = match rest.chars().next() {
        Some('(') => rest.strip_prefix("()")?,
        Some('[') => rest.strip_prefix("[]")?,
        // A conversion, `new`, a literal.
        Some(' ' | '"') => &rest[rest.find('(').unwrap_or(rest.len())..],
        Some(c) if c.is_alphanumeric() || c == '_' => return None,
        _ => rest.trim_start_matches(|c| "+-*/%^&|~!=,<>".contains(c)),
    };
    Some(text.len() - after.len())
}

/// The name in one spelling, without ABI tags and suffixes of the compiler: ` [clone .isra.0]`, ` (.cold)`.
fn normalised(name: &str) -> String {
    let suffixes = [" [clone ", " (."].iter();
    let end = suffixes.filter_map(|suffix| name.find(suffix)).min();
    let mut tagged = name[..end.unwrap_or(name.len())].split("[abi:");
    let mut text = tagged.next().unwrap_or_default().to_owned();
    text.extend(tagged.filter_map(|tag| Some(tag.split_once(']')?.1)));
    for (spelling, ours) in SPELLINGS {
        text = text.replace(spelling, ours);
    }
    if text.contains("[lambda") {
        text = text.replace("[lambda", "{lambda");
        text = text.replace(" (instance ", "#").replace(")]", "}");
    }
    text
}
