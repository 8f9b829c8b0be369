//! A build without `serve` makes no documents.

use anyhow::Result;

use super::super::serving::{DocumentRequest, ServeConfig};
use super::Run;

/// Documents that nobody can ask for.
pub(super) enum DocumentState {}

impl DocumentState {
    pub(super) fn new(config: &ServeConfig) -> Self {
        match *config {}
    }
}

impl Run<'_> {
    pub(super) fn serve(&mut self, request: DocumentRequest) -> Result<()> {
        match request {}
    }

    pub(super) fn refresh_served(&mut self) -> Result<()> {
        match self.served {
            None => Ok(()),
            Some(ref served) => match *served {},
        }
    }

    pub(super) fn announce_served(&self) {
        if let Some(served) = &self.served {
            match *served {}
        }
    }
}
