//! A page of metrics in Prometheus' text format, from families of samples.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder, prometheus_text},
    metrics::{MetricType, histogram::Histogram},
    registry::Registry,
};
use std::fmt;

/// Names and values, in the order in which they are written.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A number.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A whole one: bytes, numbers of things.
    Whole(u64),
    /// Any other: seconds.
    Real(f64),
    /// How many took how long.
    Spread(Histogram),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

/// All samples of one name.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Vec<(Labels, Value)>,
}

/// The families, in their order.
#[derive(Debug, Default)]
pub(super) struct Page(Vec<Family>);

impl Page {
    /// Adds a family of numbers that only rise; `_total` is added to its name. What is not known is left out.
    pub(super) fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        value: Option<impl Into<Value>>,
    ) {
        self.counters(name, help, value.map(|value| (Labels::new(), value.into())));
    }

    /// Likewise, of several.
    pub(super) fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels, Value)>,
    ) {
        self.family(name, help, MetricType::Counter, samples);
    }

    /// Adds a family of numbers that rise and fall.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, value: Option<impl Into<Value>>) {
        self.gauges(name, help, value.map(|value| (Labels::new(), value.into())));
    }

    /// Likewise, of several.
    pub(super) fn gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels, Value)>,
    ) {
        self.family(name, help, MetricType::Gauge, samples);
    }

    /// Adds a family of histograms.
    pub(super) fn histograms(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels, Histogram)>,
    ) {
        let samples = samples.into_iter().map(|(labels, spread)| (labels, Value::Spread(spread)));
        self.family(name, help, MetricType::Histogram, samples);
    }

    fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: MetricType,
        samples: impl IntoIterator<Item = (Labels, Value)>,
    ) {
        let samples: Vec<_> = samples.into_iter().collect();
        if !samples.is_empty() {
            self.0.push(Family { name, help, kind, samples });
        }
    }

    /// The page as text.
    ///
    /// # Errors
    /// None is known of.
    pub(super) fn text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).map(|()| text)
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let mut described = encoder.encode_descriptor(family.name, family.help, None, family.kind)?;
            for (labels, value) in &family.samples {
                sample(described.encode_family(labels)?, family.kind, value)?;
            }
        }
        Ok(())
    }
}

fn sample(mut encoder: MetricEncoder<'_>, kind: MetricType, value: &Value) -> fmt::Result {
    let counts = matches!(kind, MetricType::Counter);
    match value {
        Value::Whole(value) if counts => encoder.encode_counter::<Labels, _, f64>(value, None),
        Value::Real(value) if counts => encoder.encode_counter::<Labels, _, f64>(value, None),
        Value::Whole(value) => encoder.encode_gauge(value),
        Value::Real(value) => encoder.encode_gauge(value),
        Value::Spread(spread) => spread.encode(encoder),
    }
}
