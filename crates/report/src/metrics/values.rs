//! Values of metrics.

use std::collections::BTreeMap;

use super::{Labels, Metric};

/// Value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MetricValue {
    /// A number of something.
    Integer(u64),
    /// A quantity.
    Float(f64),
}

/// A family of series: a metric, and a value for each of its label sets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Family {
    /// The metric of all its series.
    pub(super) metric: Metric,
    /// Values by label set, in order.
    pub(super) series: BTreeMap<Labels, MetricValue>,
}
