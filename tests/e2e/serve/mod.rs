//! `gpuprobe serve`: its documents, and who is answered. With other programs: `long::serve`.

pub(crate) mod access;
pub(crate) mod documents;
