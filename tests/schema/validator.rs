//! Validates gpuprobe's output against `docs/report.schema.json`.

use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

pub(crate) static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    // Part of the binary: on other kernels, the tests run without the sources.
    serde_json::from_str(include_str!("../../docs/report.schema.json")).unwrap()
});

static COMPILED: LazyLock<(Schemas, SchemaIndex)> = LazyLock::new(|| {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.enable_format_assertions();
    let address = "memory:///report.schema.json";
    compiler.add_resource(address, DOCUMENT.clone()).unwrap();
    let index = compiler.compile(address, &mut schemas).unwrap();
    (schemas, index)
});

/// Violations of the schema in `document`.
pub(crate) fn complaint(document: &Value) -> Option<String> {
    let (schemas, index) = &*COMPILED;
    let refused = schemas.validate(document, *index).err()?;
    Some(format!("{refused:#}"))
}

/// Asserts that `document` is valid.
///
/// # Panics
///
/// If it is not, with the violations of each kind of document.
pub(crate) fn check(document: &Value) {
    if let Some(complaint) = complaint(document) {
        panic!("docs/report.schema.json refuses {document}:\n{complaint}");
    }
}

/// Asserts that all documents in `text` are valid.
///
/// # Panics
///
/// As [`check`].
pub(crate) fn check_all(text: &str) {
    for document in serde_json::Deserializer::from_str(text).into_iter() {
        check(&document.unwrap());
    }
}
