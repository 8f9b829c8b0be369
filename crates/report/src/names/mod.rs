//! Names of kernels and functions for display: without boilerplate, fitted to the width, and unique
//! within a list.
//!
//! Used for every list of kernels, functions and call sites, in text and pictures. Provides [`simplify`] and [`qualified`] for one name, [`fit`] for names shown
//! together, [`cut`] for lines that contain more than a name.

mod apart;
mod brackets;
pub(crate) mod elide;
mod render;
mod tree;
mod weight;

#[cfg(test)]
mod tests;

pub use apart::{cut, fit};

use std::cell::RefCell;

use gpuprobe_model::memo::NameMemo;
use render::NameShape;

/// A demangled name of C++, Rust, Python or Triton without boilerplate: result and parameters of
/// functions, default template arguments, ABI tags, namespaces, types of numbers. A lambda keeps
/// its enclosing function, a method its class.
pub fn simplify(name: &str) -> String {
    thread_local! {
        static SIMPLE: RefCell<NameMemo> = RefCell::default();
    }
    SIMPLE.with_borrow_mut(|memo| memo.get(name, |name| rendered(name, NameShape::SIMPLE)))
}

/// The same with all namespaces, which show the origin of a function that stands alone.
pub fn qualified(name: &str) -> String {
    let namespaces = true;
    let shape = NameShape {
        namespaces,
        ..NameShape::SIMPLE
    };
    rendered(name, shape)
}

fn rendered(name: &str, shape: NameShape<'_>) -> String {
    let (nodes, _) = tree::parse(name);
    let text = render::render(&nodes, shape, None);
    if text.is_empty() {
        name.to_owned()
    } else {
        text
    }
}
