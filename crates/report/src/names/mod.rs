//! Names of kernels and functions, for people: without boilerplate, as wide as there is room, and
//! never two alike in a list.
//!
//! For: every list of names, of kernels, functions and call sites, in text and pictures.
//! May use: nothing.
//! Gives: [`simplify`] and [`qualified`] for one name, [`fit`] for those that are shown together, [`cut`] for
//! lines that have more than a name.

mod apart;
mod brackets;
mod elide;
mod render;
mod tree;
mod weight;

#[cfg(test)]
mod tests;

pub use apart::{cut, fit};

use render::Shape;

/// A demangled name of C++, Rust, Python or Triton without what tells nothing: results and
/// parameters of functions, default template arguments, ABI tags, namespaces, types of numbers. A
/// lambda keeps the function that it is in, a method its class.
pub fn simplify(name: &str) -> String {
    rendered(name, Shape::SIMPLE)
}

/// The same with all namespaces: where a function stands alone, they say whose it is.
pub fn qualified(name: &str) -> String {
    let namespaces = true;
    let shape = Shape {
        namespaces,
        ..Shape::SIMPLE
    };
    rendered(name, shape)
}

fn rendered(name: &str, shape: Shape<'_>) -> String {
    let (nodes, _) = tree::parse(name);
    let text = render::render(&nodes, shape, None);
    if text.is_empty() {
        name.to_owned()
    } else {
        text
    }
}
