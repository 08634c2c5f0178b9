//! An event made independent of the stack it happened on, so that it can go to another thread.

use std::fmt;

use tracing::field::{Field, Value, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// One value, owned.
#[derive(Debug, Clone)]
pub(super) enum Owned {
    Text(String),
    Unsigned(u64),
    Signed(i64),
    Bool(bool),
}

impl Owned {
    pub(super) fn as_value(&self) -> &dyn Value {
        match self {
            Self::Text(text) => text,
            Self::Unsigned(number) => number,
            Self::Signed(number) => number,
            Self::Bool(bool) => bool,
        }
    }
}

impl fmt::Display for Owned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => formatter.write_str(text),
            Self::Unsigned(number) => number.fmt(formatter),
            Self::Signed(number) => number.fmt(formatter),
            Self::Bool(bool) => bool.fmt(formatter),
        }
    }
}

/// The values of one event or span, by field index.
#[derive(Debug, Clone)]
pub(super) struct Values {
    pub(super) metadata: &'static Metadata<'static>,
    values: Vec<Option<Owned>>,
}

impl Values {
    fn new(metadata: &'static Metadata<'static>) -> Self {
        Self { metadata, values: vec![None; metadata.fields().len()] }
    }

    /// The values in the form that tracing replays.
    pub(super) fn as_values(&self) -> Vec<Option<&dyn Value>> {
        self.values.iter().map(|value| value.as_ref().map(Owned::as_value)).collect()
    }

    /// Name and value of each field that is set.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &Owned)> {
        self.metadata
            .fields()
            .iter()
            .zip(&self.values)
            .filter_map(|(field, value)| value.as_ref().map(|value| (field.name(), value)))
    }

    fn set(&mut self, field: &Field, value: Owned) {
        if let Some(place) = self.values.get_mut(field.index()) {
            *place = Some(value);
        }
    }
}

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, Owned::Text(value.to_owned()));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Owned::Unsigned(value));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Owned::Signed(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Owned::Bool(value));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, Owned::Text(format!("{value:?}")));
    }
}

/// An event with the spans around it, outermost first.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) event: Values,
    pub(super) spans: Vec<Values>,
}

/// Where records go. Called on the thread of the event: must not block.
pub(super) trait Sink: Send + Sync + 'static {
    fn put(&self, record: Record);
}

/// The layer that turns events into records.
pub(super) struct Capture<S>(pub(super) S);

impl<S: Sink, R: Subscriber + for<'a> LookupSpan<'a>> Layer<R> for Capture<S> {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, R>) {
        if let Some(span) = context.span(id) {
            let mut values = Values::new(attributes.metadata());
            attributes.record(&mut values);
            span.extensions_mut().replace(values);
        }
    }

    fn on_record(&self, id: &Id, changes: &tracing::span::Record<'_>, context: Context<'_, R>) {
        if let Some(span) = context.span(id)
            && let Some(values) = span.extensions_mut().get_mut::<Values>()
        {
            changes.record(values);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, R>) {
        let mut values = Values::new(event.metadata());
        event.record(&mut values);
        let spans = context.event_scope(event).map_or_else(Vec::new, |scope| {
            scope.from_root().filter_map(|span| span.extensions().get::<Values>().cloned()).collect()
        });
        self.0.put(Record { event: values, spans });
    }
}
