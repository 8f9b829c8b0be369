//! Where the records of the rings go.

use super::filter::Sieve;
use crate::api::Modes;
use crate::discover::world::Live;
use crate::event;
use crate::recording::Tap;
use crate::recording::tap::Witness;
use crate::state::transfers::Transfer;
use crate::state::{State, World};

/// What the records of the rings are applied to.
pub(super) struct Sink {
    pub(super) modes: Modes,
    pub(super) state: State,
    pub(super) world: Live,
    pub(super) sieve: Sieve,
    pub(super) undecodable: u64,
    /// Single copies to be written, if that is asked for.
    pub(super) copies: Option<Vec<Transfer>>,
    /// Where all of it is recorded, if it is.
    pub(super) tap: Box<dyn Tap>,
}

impl Sink {
    /// Decodes and applies one record.
    pub(super) fn record(&mut self, bytes: &[u8]) {
        match event::decode(bytes) {
            Ok(event) => {
                let world = &self.world;
                if !self.sieve.passes(&event, |task| world.identity(task)) {
                    return;
                }
                let transfer = if self.tap.is_recording() {
                    let witness = Witness::new(&self.world);
                    let transfer = self.state.apply(&event, self.modes, &witness);
                    witness
                        .into_notes()
                        .into_iter()
                        .for_each(|note| self.tap.note(note));
                    self.tap.record(bytes);
                    transfer
                } else {
                    self.state.apply(&event, self.modes, &self.world)
                };
                if let (Some(copies), Some(transfer)) = (&mut self.copies, transfer) {
                    copies.push(transfer);
                }
            }
            Err(error) => {
                self.undecodable += 1;
                tracing::debug!("{error}");
            }
        }
    }
}
