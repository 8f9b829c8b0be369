//! `docs/report.schema.json` as a judge of what gpuprobe has written.

use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// The schema as a value.
pub(crate) static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    // Part of the program: on other kernels, the tests run without the sources.
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

/// What the schema has against `document`.
pub(crate) fn complaint(document: &Value) -> Option<String> {
    let (schemas, index) = &*COMPILED;
    let refused = schemas.validate(document, *index).err()?;
    Some(format!("{refused:#}"))
}

/// The schema allows `document`.
///
/// # Panics
/// If it does not: with the reasons, for each kind of document.
pub(crate) fn check(document: &Value) {
    if let Some(complaint) = complaint(document) {
        panic!("docs/report.schema.json refuses {document}:\n{complaint}");
    }
}

/// The schema allows all documents in `text`.
///
/// # Panics
/// As [`check`].
pub(crate) fn check_all(text: &str) {
    for document in serde_json::Deserializer::from_str(text).into_iter() {
        check(&document.unwrap());
    }
}
