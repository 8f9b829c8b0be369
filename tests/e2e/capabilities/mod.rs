//! Capabilities: which gpuprobe needs, and which it drops once it traces.

mod dropped;
mod needed;
