//! Python: from what the kernel side sends of frames and code objects to lines.

pub mod lines;
pub mod origin;
