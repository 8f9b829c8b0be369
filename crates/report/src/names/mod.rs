//! Names of kernels and functions, for people: without boilerplate, as wide as there is room, and
//! never two alike in a list.
//!
//! For: every list of names, of kernels, functions and call sites, in text and pictures.
//! May use: nothing.
//! Gives: [`simplify`] for one name, [`fit`] for those that are shown together, [`cut`] for
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
    let (nodes, _) = tree::parse(name);
    let text = render::render(&nodes, Shape::SIMPLE, None);
    if text.is_empty() {
        name.to_owned()
    } else {
        text
    }
}
