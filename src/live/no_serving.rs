//! A build without `serve` serves nothing.

use std::convert::Infallible;
use std::future;

/// Settings that nobody can give.
#[derive(Clone, Debug)]
pub enum ServeConfig {}

/// A request that nobody can make.
pub(super) type DocumentRequest = Infallible;

/// A connection that nobody can make.
pub(super) struct Serving(Infallible);

impl Serving {
    pub(super) fn start(config: &ServeConfig) -> anyhow::Result<Self> {
        match *config {}
    }

    pub(super) async fn next(&mut self) -> Option<DocumentRequest> {
        future::pending().await
    }
}
