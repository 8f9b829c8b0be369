//! Memory handed out by PyTorch's allocator, as text.

use std::io;

use gpuprobe_model::text::size;

use super::page::Page;
use super::sites::SiteList;
use crate::View;
use crate::memleak::{ProcessReport, PytorchReport};
use crate::words::{percent, plural};

/// Columns before what is said of a device.
const INDENT: usize = 18;

/// Writes what each device's allocator has handed out, and `top` call sites of each; nothing if there is none.
pub(super) fn write(
    process: &ProcessReport,
    view: &View,
    top: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let pytorch = process.pytorch.iter().map(|one| ("PyTorch cuda", one));
    let tensorflow = process.tensorflow.iter();
    for (name, tensors) in pytorch.chain(tensorflow.map(|one| ("TensorFlow GPU", one))) {
        write_sums(name, tensors, page)?;
        let Some(sites) = SiteList::of_tensors(process, tensors) else {
            continue;
        };
        match view.tensor_site {
            Some(number) => sites.write_one(number, view, page)?,
            None => {
                sites.write(top, view, page)?;
                if top >= sites.sites.len() {
                    sites.write_rest(page)?;
                }
            }
        }
    }
    Ok(())
}

/// Writes the memory handed out, and how it lies in the memory reserved from CUDA.
fn write_sums(name: &str, pytorch: &PytorchReport, page: &mut Page<'_>) -> io::Result<()> {
    let (allocated, reserved) = (pytorch.allocated_bytes, pytorch.reserved_bytes);
    let share = match reserved {
        0 => String::new(),
        _ => format!(" ({} %)", percent(allocated as f64 / reserved as f64)),
    };
    let (allocated, reserved) = (size(allocated), size(reserved));
    let segments = plural(pytorch.segments, "segment");
    let mut said = vec![format!(
        "allocated {allocated} of {reserved} reserved{share}, in {segments}"
    )];
    if pytorch.cached_bytes() > 0 && pytorch.segments > 0 {
        let cached = size(pytorch.cached_bytes());
        let largest = size(pytorch.largest_free_bytes);
        let mut cached = format!("{cached} cached: largest free block {largest}");
        if pytorch.largest_fit_bytes > 0 {
            let fits = size(pytorch.largest_fit_bytes);
            cached += &format!("; a request of more than {fits} takes a new segment");
        }
        said.push(cached);
        if pytorch.empty_cache_bytes > 0 && name.starts_with("PyTorch") {
            let unused = size(pytorch.empty_cache_bytes);
            said.push(format!("empty_cache() would give back {unused}"));
        }
    }
    if pytorch.pinned_by_small_bytes > 0 {
        said.push(pinned(pytorch));
    }
    if pytorch.before_bytes > 0 {
        let before = size(pytorch.before_bytes);
        said.push(format!("{before} allocated before gpuprobe attached"));
    }
    let unseen = pytorch.reserved_bytes.saturating_sub(pytorch.segment_bytes);
    if unseen > 0 {
        let unseen = size(unseen);
        said.push(format!(
            "{unseen} in segments from before: how full these are is not known"
        ));
    }
    if pytorch.outside_bytes > 0 && pytorch.since_start {
        let outside = size(pytorch.outside_bytes);
        said.push(format!(
            "{outside} in no memory that was seen to be allocated"
        ));
    }
    let name = format!("{name}:{}", pytorch.device);
    for (index, said) in said.iter().enumerate() {
        let first = if index == 0 { &*name } else { "" };
        page.hanging(&format!("{first:INDENT$}"), said)?;
    }
    Ok(())
}

/// `412 MiB held by segments with less than 5 % in use (3 tensors pin them: sites T7, T12)`.
fn pinned(pytorch: &PytorchReport) -> String {
    let sites = pytorch.pinned_by_sites.iter();
    let sites: Vec<_> = sites.map(|id| format!("T{id}")).collect();
    let pin = match pytorch.pinned_by_tensors {
        1 => "pins",
        _ => "pin",
    };
    let by = plural(pytorch.pinned_by_tensors, "tensor");
    let at = match (&pytorch.sites, &sites[..]) {
        (Some(_), [one]) => format!(": site {one}"),
        (Some(_), [_, ..]) => format!(": sites {}", sites.join(", ")),
        _ => String::new(),
    };
    format!(
        "{} held by segments with less than 5 % in use ({by} {pin} them{at})",
        size(pytorch.pinned_by_small_bytes)
    )
}
