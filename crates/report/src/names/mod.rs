//! Names of kernels and functions for display: [`simplify`] and [`qualified`] for one name, [`fit`] for
//! a list of them, [`cut`] for other text.

mod elide;
mod scanner;

#[cfg(test)]
mod tests;

pub use elide::{cut, fit};

use std::cell::RefCell;

use gpuprobe_model::memo::NameMemo;

/// A demangled name of C++ or Rust without boilerplate: result and parameters of functions, ABI
/// tags, namespaces, deep template arguments. A lambda keeps its enclosing function, a method its
/// class. Other text is unchanged.
pub fn simplify(name: &str) -> String {
    thread_local! {
        static SIMPLE: RefCell<NameMemo> = RefCell::default();
    }
    SIMPLE.with_borrow_mut(|memo| memo.get(name, |name| scanner::scan(name, false)))
}

/// The same with all namespaces, which show the origin of a function that stands alone.
pub fn qualified(name: &str) -> String {
    scanner::scan(name, true)
}
