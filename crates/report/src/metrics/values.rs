//! Values of metrics.

use std::collections::BTreeMap;

use super::{Labels, Metric};

/// Value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    /// A number of something.
    Integer(u64),
    /// A quantity.
    Float(f64),
}

/// A family of series: a metric, and a value for each of its label sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The metric of all its series.
    pub metric: Metric,
    /// Values by label set, in order.
    pub series: BTreeMap<Labels, MetricValue>,
}

impl MetricValue {
    /// The value as a floating-point number.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}
