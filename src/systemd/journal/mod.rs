//! The journal: every event with its fields, and the way there.
//!
//! Owns the global tracing subscriber of the process. Promises that emitting never blocks, whatever journald
//! does, and that fields arrive under the names `journalctl FIELD=value` is asked with.

/// The events of what stands behind a network.
mod behind;
/// One non-blocking datagram per entry.
mod direct;
/// The events.
mod event;
/// The events of other firewalls.
mod firewall;
/// A bounded queue and a thread.
mod queue;
/// Entries that come again and again.
mod repeats;
/// Events made independent of their stack.
mod record;
/// Plain text on stderr.
mod text;
/// Words that several events share.
mod words;

pub use behind::Behind;
pub use event::{AttachmentFields, Event, MESSAGE_IDS, PodFields};
pub use firewall::Firewall;
pub use queue::entries_lost;

use std::sync::{LazyLock, Mutex, OnceLock};
use std::time::Instant;

use tracing::Level;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::cni::TraceParent;

use direct::Direct;
use record::{Capture, Record, Sink};
use repeats::Repeats;

/// Which process is talking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The server. `filter` is in `RUST_LOG`'s syntax, which overrides it; what does not parse counts as `info`.
    Server {
        /// From the settings.
        filter: String,
    },
    /// The CNI plugin: to the journal and nowhere else, since a runtime may read what is printed.
    Plugin,
    /// A command: to the journal, and as text unless stderr is the journal already.
    Helper,
}

/// Keep it until the end of the process: dropping it writes out what is queued, for at most half a second.
#[must_use = "dropping the guard ends logging early"]
pub struct LogGuard {
    _flusher: Option<queue::Flusher>,
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        tell_repeats(true);
    }
}

/// Starts logging. Call it once; where logging cannot be had, the process goes on without.
pub fn init(mode: Mode) -> LogGuard {
    let (layer, flusher) = layer(&mode);
    let settings = match mode {
        Mode::Server { filter } => filter,
        Mode::Plugin | Mode::Helper => "info".to_owned(),
    };
    let filter = filter_of(std::env::var("RUST_LOG").ok().as_deref(), &settings);
    let (filter, handle) = reload::Layer::new(filter);
    let _ = FILTER.set(Box::new(move |filter| {
        if let Some(filter) = filter {
            let _ = handle.reload(filter);
        }
        handle.with_current(ToString::to_string).unwrap_or_default()
    }));
    let _ = tracing_subscriber::registry().with(layer).with(filter).try_init();
    LogGuard { _flusher: flusher }
}

/// Changes the filter of the subscriber that [`init`] has set, if another one is given; tells the one in force.
type Filtering = Box<dyn Fn(Option<EnvFilter>) -> String + Send + Sync>;
static FILTER: OnceLock<Filtering> = OnceLock::new();

/// The filter in force, in `RUST_LOG`'s syntax.
pub fn filter() -> String {
    FILTER.get().map(|filtering| filtering(None)).unwrap_or_default()
}

/// Filters by `settings` from now on, unless `RUST_LOG` says otherwise.
pub fn set_filter(settings: &str) {
    change_to(filter_of(std::env::var("RUST_LOG").ok().as_deref(), settings));
}

/// Filters by that from now on, whatever else says otherwise; false for what is no filter.
pub fn filter_by(text: &str) -> bool {
    EnvFilter::try_new(text).map(change_to).is_ok()
}

fn change_to(filter: EnvFilter) {
    if let Some(filtering) = FILTER.get() {
        filtering(Some(filter));
    }
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// All of them say `hostcni`: `journalctl -t hostcni` is plugin, helpers and server in one story.
const IDENTIFIER: &str = "hostcni";

fn layer(mode: &Mode) -> (BoxedLayer, Option<queue::Flusher>) {
    let in_journal = libsystemd::logging::connected_to_journal();
    match mode {
        Mode::Server { .. } if in_journal => match queue::start(IDENTIFIER) {
            Ok((queue, flusher)) => (Capture(queue).boxed(), Some(flusher)),
            // stderr leads there as well, without the fields.
            Err(_) => (Capture(text::Text).boxed(), None),
        },
        Mode::Server { .. } => (Capture(text::Text).boxed(), None),
        Mode::Plugin => (Capture(Both(Direct::new(IDENTIFIER).ok(), None)).boxed(), None),
        Mode::Helper => {
            let journal = Direct::new(IDENTIFIER).ok();
            let text = (!in_journal || journal.is_none()).then_some(text::Text);
            (Capture(Both(journal, text)).boxed(), None)
        }
    }
}

/// The journal, the terminal, both or neither.
struct Both(Option<Direct>, Option<text::Text>);

impl Sink for Both {
    fn put(&self, record: Record) {
        if let Some(text) = &self.1 {
            text.write(&record);
        }
        if let Some(journal) = &self.0 {
            journal.write(&record);
        }
    }
}

fn filter_of(environment: Option<&str>, settings: &str) -> EnvFilter {
    environment
        .filter(|text| !text.is_empty())
        .into_iter()
        .chain([settings])
        .find_map(|text| EnvFilter::try_new(text).ok())
        .unwrap_or_else(|| EnvFilter::new("info"))
}

/// What all entries of a request have in common, when its runtime traces: `journalctl TRACE_ID=…` finds them.
///
/// At ERROR, or a filter for the loud entries would leave their ids out.
pub fn request_span(traceparent: Option<&str>, tracestate: Option<&str>) -> tracing::Span {
    let Some(parent) = traceparent.and_then(TraceParent::parse) else { return tracing::Span::none() };
    tracing::error_span!(
        target: "hostcni",
        "request",
        TRACE_ID = parent.trace_id,
        SPAN_ID = parent.span_id,
        HOSTCNI_TRACESTATE = tracestate.filter(|state| !state.is_empty()),
    )
}

/// The field names are what `journalctl` is asked with: documented, never changed.
macro_rules! emit_at {
    ($level:expr, $event:expr) => {
        if tracing::enabled!(target: "hostcni", $level) {
            let entry = $event.entry();
            let attachment = entry.attachment;
            tracing::event!(
                target: "hostcni",
                $level,
                MESSAGE_ID = $event.message_id(),
                CNI_COMMAND = entry.command,
                CNI_CONTAINERID = attachment.map(|attachment| attachment.container_id),
                CNI_IFNAME = attachment.map(|attachment| attachment.ifname),
                HOSTCNI_NETWORK = attachment.map(|attachment| attachment.network).or(entry.network),
                K8S_POD_NAMESPACE = entry.pod.map(|pod| pod.namespace),
                K8S_POD_NAME = entry.pod.map(|pod| pod.name),
                K8S_POD_UID = entry.pod.map(|pod| pod.uid),
                HOSTCNI_ADDRESS = entry.address,
                HOSTCNI_DURATION_USEC = entry.duration_usec,
                HOSTCNI_CNI_CODE = entry.code,
                HOSTCNI_PATH = entry.path,
                HOSTCNI_SHADOWED_BY = entry.by,
                HOSTCNI_STEP = entry.step,
                HOSTCNI_PLUGIN = entry.plugin,
                HOSTCNI_COUNT = entry.count,
                HOSTCNI_REASON = entry.reason,
                "{}",
                $event.message()
            );
        }
    };
}
/// Reports an event. Never blocks.
pub fn emit(event: &Event<'_>) {
    if may_repeat(event) && !tell(event) {
        return;
    }
    // The level of a tracing event is part of its static description, hence one per level.
    match event.level() {
        Level::ERROR => emit_at!(Level::ERROR, event),
        Level::WARN => emit_at!(Level::WARN, event),
        Level::INFO => emit_at!(Level::INFO, event),
        _ => emit_at!(Level::DEBUG, event),
    }
}

/// What may come again and again: troubles that are no part of a pod's story.
fn may_repeat(event: &Event<'_>) -> bool {
    event.level() <= Level::WARN && event.entry().attachment.is_none()
}

static REPEATS: LazyLock<Mutex<Repeats>> = LazyLock::new(Mutex::default);

/// Whether it is told now, or only counted.
fn tell(event: &Event<'_>) -> bool {
    let Ok(mut repeats) = REPEATS.lock() else { return true };
    repeats.tell(event.message_id(), &event.message(), Instant::now())
}

/// Tells how often entries were held back, when it is time; at the end of the process in any case.
pub fn tell_repeats(end: bool) {
    let due = match REPEATS.lock() {
        Ok(mut repeats) => repeats.due(Instant::now(), end),
        Err(_) => return,
    };
    for repeats::HeldBack { id, message, count } in due {
        tracing::warn!(target: "hostcni", MESSAGE_ID = id, HOSTCNI_COUNT = count, "{count} more of: {message}");
    }
}

#[cfg(test)]
mod tests;
