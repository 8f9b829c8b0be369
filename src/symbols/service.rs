//! stub
use crate::stacks::{Frame, Location, Module};
use std::sync::Arc;
use std::time::Duration;
/// s
pub struct Service;
impl Service {
    /// s
    pub fn start() -> anyhow::Result<Self> {
        Ok(Self)
    }
    /// s
    pub fn request(&mut self, _r: Vec<(u32, Location, bool, Option<Arc<Module>>)>) {}
    /// s
    pub fn poll(&mut self) -> Vec<(u32, Location, bool, Vec<Frame>)> {
        Vec::new()
    }
    /// s
    pub fn outstanding(&self) -> usize {
        0
    }
    /// s
    pub fn wait(&mut self, _d: Duration) -> usize {
        0
    }
}
