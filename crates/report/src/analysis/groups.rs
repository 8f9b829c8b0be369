//! Allocations by call stack.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::Rc;

use serde::Serialize;

use super::events::Origin;
use super::listing::plain_name;
use super::tracker::{Allocation, Amount};
use gpuprobe_recording::chains::{Frame, Stack};
use gpuprobe_recording::{Resolver, kinds};
use gpuprobe_stacks::cuda;

/// Allocations made by one call stack.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub allocations: u64,
    /// Kind of memory.
    pub kind: &'static str,
    /// The function that was called, if it is known.
    pub operation: Option<Rc<str>>,
    /// The call stack, innermost frame first; empty if it is not known.
    pub stack: Stack,
}

/// What groups are told apart by, before anything is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Raw {
    chain: Option<i64>,
    function: Option<i64>,
    kind: u8,
}

/// Adds up allocations by call stack.
#[derive(Debug, Default)]
pub struct Groups {
    amounts: HashMap<(Stack, Option<Rc<str>>, u8), Amount>,
    /// Amounts that are not looked up yet; exports may have a chain for every call.
    raw: HashMap<Raw, Amount>,
}

/// Amounts that are kept before they are looked up.
const MAX_RAW: usize = 1 << 16;

impl Groups {
    /// Adds an allocation.
    pub fn add(&mut self, resolver: &Resolver<'_>, kind: u8, allocation: &Allocation) {
        let origin = allocation.origin;
        let raw = Raw {
            chain: origin.chain,
            function: origin.function,
            kind,
        };
        self.raw.entry(raw).or_default().add(allocation.bytes);
        if self.raw.len() >= MAX_RAW {
            self.look_up(resolver);
        }
    }

    fn look_up(&mut self, resolver: &Resolver<'_>) {
        for (raw, amount) in self.raw.drain() {
            let stack = raw
                .chain
                .map_or_else(|| Stack::from([]), |chain| resolver.stack(chain));
            let function = raw
                .function
                .map(|id| plain_name(&resolver.string(id)).into());
            let total = self.amounts.entry((stack, function, raw.kind)).or_default();
            total.bytes = total.bytes.saturating_add(amount.bytes);
            total.allocations += amount.allocations;
        }
    }

    /// The groups, largest first.
    pub fn finish(mut self, resolver: &Resolver<'_>) -> Vec<Group> {
        self.look_up(resolver);
        let group = |((stack, operation, kind), amount): ((Stack, _, u8), Amount)| Group {
            bytes: amount.bytes,
            allocations: amount.allocations,
            kind: kinds::of_id(kind).short,
            operation,
            stack,
        };
        let mut groups: Vec<_> = self.amounts.into_iter().map(group).collect();
        groups.sort_by(|a, b| {
            let key = |g: &Group| (Reverse(g.bytes), Reverse(g.allocations));
            key(a).cmp(&key(b)).then_with(|| name(a).cmp(&name(b)))
        });
        groups
    }
}

fn name(group: &Group) -> String {
    format!("{:?}{:?}{}", group.stack, group.operation, group.kind)
}

/// The innermost frame that is in none of CUDA's libraries and has a name: the place that a user
/// recognises.
pub fn site(stack: &[Frame]) -> Option<&Frame> {
    let users = |frame: &&Frame| {
        let is_cuda = cuda::is_cuda(&frame.function, &frame.module, frame.file.as_deref());
        let is_libc = cuda::file_name(&frame.module).starts_with("libc.so");
        !frame.unresolved && !is_cuda && !is_libc
    };
    stack.iter().find(users)
}

impl Group {
    /// A short name: the function that called CUDA, else the function of CUDA, else the kind.
    pub fn site(&self) -> String {
        name_site(&self.stack, self.operation.as_deref(), self.kind)
    }

    /// The short name of the group that an allocation of `kind` with this `origin` belongs to.
    pub fn site_of(resolver: &Resolver<'_>, kind: u8, origin: Origin) -> String {
        let stack = origin
            .chain
            .map_or_else(|| Stack::from([]), |chain| resolver.stack(chain));
        let function = origin.function.map(|id| resolver.string(id));
        let function = function.as_deref().map(plain_name);
        name_site(&stack, function, kinds::of_id(kind).short)
    }
}

fn name_site(stack: &[Frame], operation: Option<&str>, kind: &str) -> String {
    let function = operation.unwrap_or(kind);
    match site(stack) {
        Some(frame) => format!("{function} <- {}", frame.function),
        None => function.to_owned(),
    }
}
