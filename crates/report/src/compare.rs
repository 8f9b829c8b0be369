//! Comparison of the memory of two runs, by call site.

use std::collections::HashMap;

use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;

use crate::site_key::SiteKey;

/// Memory of a call site in two runs.
#[derive(Clone, Debug, Default)]
pub struct SiteGrowth {
    /// In the first and in the second run.
    pub totals: [Total; 2],
    /// The function called.
    pub api: String,
    /// The stack with the most bytes in the later run that has the site.
    pub frames: Vec<Frame>,
    /// That run, and these bytes.
    most: Option<(usize, u64)>,
}

/// The call sites of two runs.
#[derive(Debug, Default)]
pub struct Comparison(pub HashMap<SiteKey, SiteGrowth>);

impl Comparison {
    /// Adds memory of run 0 or 1 that was allocated by `api`, called by `frames`.
    pub fn add(
        &mut self,
        run: usize,
        key: SiteKey,
        (api, frames): (&str, &[Frame]),
        amount: Total,
    ) {
        let site = self.0.entry(key).or_default();
        if site.most < Some((run, amount.bytes)) {
            api.clone_into(&mut site.api);
            site.frames = frames.to_vec();
            site.most = Some((run, amount.bytes));
        }
        site.totals[run].merge(amount);
    }
}
