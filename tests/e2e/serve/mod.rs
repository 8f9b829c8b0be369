//! `gpuprobe serve`: its documents, and who is answered. With other programs: `long::serve`.

mod access;
mod documents;
