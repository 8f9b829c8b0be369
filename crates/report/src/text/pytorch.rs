//! Memory handed out by PyTorch's allocator, as text.

use std::io::{self, Write};

use gpuprobe_model::text::size;

use super::page::Page;
use super::sites::{SiteListOwner, write_details, write_rest, write_table};
use crate::View;
use crate::memleak::{Memleak, ProcessReport, PytorchReport};
use crate::words::{plural, wrapped};

/// Columns before what is said of a device.
const INDENT: &str = "                  ";

/// Writes what each device's allocator has handed out; nothing if there is none.
pub(super) fn write(
    process: &ProcessReport,
    memleak: &Memleak,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (name, pytorch) in of(process) {
        write_sums(name, pytorch, page, out)?;
        let Some(sites) = &pytorch.sites else {
            continue;
        };
        let held = SiteListOwner::Tensors(process, pytorch);
        match memleak.view.tensor_site {
            Some(number) => match sites.iter().find(|site| site.has_id(number)) {
                Some(site) => write_details(site, held, sites, &memleak.view, page, out)?,
                None => writeln!(out, "nothing is live at site T{number}")?,
            },
            None if !sites.is_empty() => {
                write_table(held, sites, &memleak.view, page, out)?;
                write_rest((pytorch.omitted, pytorch.filtered), sites, out)?;
            }
            None => {}
        }
    }
    Ok(())
}

/// The same with so many call sites of each device.
pub(crate) fn write_short(
    process: &ProcessReport,
    view: &View,
    top: usize,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (name, pytorch) in of(process) {
        write_sums(name, pytorch, page, out)?;
        let sites = pytorch.sites.as_deref().unwrap_or_default();
        let sites = &sites[..sites.len().min(top)];
        if !sites.is_empty() {
            write_table(
                SiteListOwner::Tensors(process, pytorch),
                sites,
                view,
                page,
                out,
            )?;
        }
    }
    Ok(())
}

/// The devices of each framework, with the name of what has handed out there.
fn of(process: &ProcessReport) -> impl Iterator<Item = (&'static str, &PytorchReport)> {
    let pytorch = process.pytorch.iter().map(|one| ("PyTorch cuda", one));
    let tensorflow = process.tensorflow.iter();
    pytorch.chain(tensorflow.map(|one| ("TensorFlow GPU", one)))
}

/// Writes the memory handed out, and how it lies in the memory reserved from CUDA.
fn write_sums(
    name: &str,
    pytorch: &PytorchReport,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (allocated, reserved) = (pytorch.allocated_bytes, pytorch.reserved_bytes);
    let share = match reserved {
        0 => String::new(),
        _ => format!(" ({:.0} %)", allocated as f64 / reserved as f64 * 100.0),
    };
    let name = format!("{:INDENT_WIDTH$}", format!("{name}:{}", pytorch.device));
    let head = format!(
        "allocated {} of {} reserved{share}, in {}",
        size(allocated),
        size(reserved),
        plural(pytorch.segments, "segment")
    );
    wrapped(&name, &head, page.columns, out)?;
    let mut said = Vec::new();
    if pytorch.cached_bytes() > 0 && pytorch.segments > 0 {
        let mut cached = format!(
            "{} cached: largest free block {}",
            size(pytorch.cached_bytes()),
            size(pytorch.largest_free_bytes)
        );
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
    said.iter()
        .try_for_each(|said| wrapped(INDENT, said, page.columns, out))
}

const INDENT_WIDTH: usize = INDENT.len();

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
