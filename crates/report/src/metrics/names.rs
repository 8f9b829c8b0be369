//! Names of call sites, kept between scrapes: a site is named by a report, and counted under its name in every
//! scrape after that.

use std::cmp::Reverse;

use super::Metric;
use super::gauges::GaugeRows;
use super::labels::{Labels, OTHER, clean_name};
use crate::memleak::SiteReport;
use crate::owners::Owners;
use gpuprobe_engine::Sites;

/// Index of a site without a name.
const UNNAMED: u32 = u32::MAX;

/// Labels of call sites, by their numbers in the engine. Several sites may have the same.
#[derive(Debug, Default)]
pub(super) struct SiteNames {
    by_site: Vec<u32>,
    names: Vec<Labels>,
}

impl SiteNames {
    /// Takes the names that a report gives. Sites that it does not list keep theirs.
    pub(super) fn learn(&mut self, listed: &[SiteReport]) {
        let before = std::mem::take(self);
        let place = |by_site: &mut Vec<u32>, number: u32, index: usize| {
            let number = number as usize;
            if by_site.len() <= number {
                by_site.resize(number + 1, UNNAMED);
            }
            by_site[number] = u32::try_from(index).unwrap_or(UNNAMED);
        };
        for site in listed {
            for &number in &site.own_ids {
                place(&mut self.by_site, number, self.names.len());
            }
            self.names.push(vec![
                ("site", clean_name(&site.label)),
                ("owner", clean_name(&site.owner)),
            ]);
        }
        let mut moved: Vec<Option<usize>> = vec![None; before.names.len()];
        for (number, &index) in (0..).zip(&before.by_site) {
            let index = index as usize;
            let is_named = self
                .by_site
                .get(number as usize)
                .is_some_and(|&i| i != UNNAMED);
            let Some(name) = before.names.get(index).filter(|_| !is_named) else {
                continue;
            };
            let to = *moved[index].get_or_insert_with(|| {
                self.names.push(name.clone());
                self.names.len() - 1
            });
            place(&mut self.by_site, number, to);
        }
    }

    /// Adds the live GPU memory of `sites` as series of `metric`: those of the `most` largest names, and the others
    /// together. Returns whether a site with memory has no name yet.
    pub(super) fn add_to(
        &self,
        rows: &mut GaugeRows,
        metric: Metric,
        sites: &Sites,
        most: usize,
    ) -> bool {
        let mut sums = vec![0_u64; self.names.len()];
        let (mut rest, mut has_unnamed) = (0_u64, false);
        for (number, site) in sites.iter().enumerate() {
            let bytes = site.live.gpu.bytes;
            if bytes == 0 {
                continue;
            }
            let index = self.by_site.get(number).copied().unwrap_or(UNNAMED);
            let sum = match sums.get_mut(index as usize) {
                Some(sum) => sum,
                None => {
                    has_unnamed = true;
                    &mut rest
                }
            };
            *sum = sum.saturating_add(bytes);
        }
        let held = sums.into_iter().zip(&self.names);
        let mut held: Vec<_> = held.filter(|(bytes, _)| *bytes > 0).collect();
        if held.len() > most {
            held.sort_by_key(|(bytes, _)| Reverse(*bytes));
            let others = held.drain(most..).map(|(bytes, _)| bytes);
            rest = others.fold(rest, u64::saturating_add);
        }
        for (bytes, name) in held {
            rows.add(metric, name.clone(), bytes);
        }
        if rest > 0 {
            let labels = ["site", "owner"].map(|name| (name, OTHER.to_owned()));
            rows.add(metric, labels.to_vec(), rest);
        }
        has_unnamed
    }
}

/// Owners of call sites, by their numbers in the engine: each is looked up once.
#[derive(Debug, Default)]
pub(super) struct SiteOwners {
    by_site: Vec<u32>,
    names: Vec<String>,
}

impl SiteOwners {
    /// Adds the live GPU memory of `sites` by owner.
    pub(super) fn add_to(&mut self, rows: &mut GaugeRows, sites: &Sites, owners: &mut Owners<'_>) {
        for site in sites.iter().skip(self.by_site.len()) {
            let owner = owners.of_site(site).owner;
            let owner = clean_name(owners.name(owner));
            let known = self.names.iter().position(|name| *name == owner);
            let index = known.unwrap_or_else(|| {
                self.names.push(owner);
                self.names.len() - 1
            });
            self.by_site.push(u32::try_from(index).unwrap_or(u32::MAX));
        }
        let mut sums = vec![None; self.names.len()];
        for (site, &owner) in sites.iter().zip(&self.by_site) {
            let live = site.live.gpu;
            if let Some(sum) = sums
                .get_mut(owner as usize)
                .filter(|_| live.allocations > 0)
            {
                *sum = Some(sum.unwrap_or(0_u64).saturating_add(live.bytes));
            }
        }
        for (name, bytes) in self.names.iter().zip(sums) {
            if let Some(bytes) = bytes {
                rows.add(Metric::Owner, vec![("owner", name.clone())], bytes);
            }
        }
    }
}
