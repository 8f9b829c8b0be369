//! The messages of metrics, field by field as in
//! <https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/metrics/v1/metrics.proto>.

// That has the meanings.
#![allow(missing_docs)]

use prost::{Message, Oneof};

/// Temporality of sums since a start.
pub const CUMULATIVE: i32 = 2;

/// The message `ExportMetricsServiceRequest`, the root.
#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_metrics: Vec<ResourceMetrics>,
}

/// Metrics of a resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    pub scope_metrics: Vec<ScopeMetrics>,
}

/// Where metrics come from.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// Metrics of an instrumentation.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<MetricMessage>,
}

/// An instrumentation: the message `InstrumentationScope`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// A metric with its values: the message `Metric`.
#[derive(Clone, PartialEq, Message)]
pub struct MetricMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    /// Its unit, as UCUM has it.
    #[prost(string, tag = "3")]
    pub unit: String,
    #[prost(oneof = "MetricData", tags = "5, 7")]
    pub data: Option<MetricData>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum MetricData {
    #[prost(message, tag = "5")]
    Gauge(GaugeData),
    #[prost(message, tag = "7")]
    Sum(SumData),
}

/// Values that are so now: the message `Gauge`.
#[derive(Clone, PartialEq, Message)]
pub struct GaugeData {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<DataPoint>,
}

/// Sums: the message `Sum`.
#[derive(Clone, PartialEq, Message)]
pub struct SumData {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<DataPoint>,
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

/// The series has ended: the point has no value.
pub const NO_RECORDED_VALUE: u32 = 1;

/// Value of a series: the message `NumberDataPoint`.
#[derive(Clone, PartialEq, Message)]
pub struct DataPoint {
    /// Since when a sum counts, nanoseconds since 1970.
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    /// Time of the value, nanoseconds since 1970.
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
    #[prost(oneof = "PointValue", tags = "4, 6")]
    pub value: Option<PointValue>,
    /// [`NO_RECORDED_VALUE`] where there is no value, else 0.
    #[prost(uint32, tag = "8")]
    pub flags: u32,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum PointValue {
    #[prost(double, tag = "4")]
    AsDouble(f64),
    #[prost(sfixed64, tag = "6")]
    AsInt(i64),
}

/// A name and its value.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute: a text.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AnyValue {
    #[prost(string, optional, tag = "1")]
    pub string_value: Option<String>,
}
