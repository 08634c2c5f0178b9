//! The runtime's trace context (<https://www.w3.org/TR/trace-context/>), which new runtimes put into the environment.

/// The ids of a `TRACEPARENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent<'a> {
    /// 32 lower-case hexadecimal digits.
    pub trace_id: &'a str,
    /// The runtime's span: 16 of them.
    pub span_id: &'a str,
}

impl<'a> TraceParent<'a> {
    /// Reads `version-trace_id-span_id-flags`. By its specification what is not right counts as absent; a later version
    /// may have more behind the flags.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split('-');
        let version = hex(parts.next()?, 2).filter(|version| *version != "ff")?;
        let trace_id = hex(parts.next()?, 32).filter(|id| id.bytes().any(|digit| digit != b'0'))?;
        let span_id = hex(parts.next()?, 16).filter(|id| id.bytes().any(|digit| digit != b'0'))?;
        hex(parts.next()?, 2)?;
        (version != "00" || parts.next().is_none()).then_some(Self { trace_id, span_id })
    }
}

fn hex(text: &str, length: usize) -> Option<&str> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (digits && text.len() == length).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn both_ids_are_read() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        assert_eq!(TraceParent::parse(&text), Some(TraceParent { trace_id: TRACE, span_id: SPAN }));
    }

    #[test]
    fn a_later_version_may_say_more() {
        assert!(TraceParent::parse(&format!("01-{TRACE}-{SPAN}-01-more")).is_some());
        assert!(TraceParent::parse(&format!("00-{TRACE}-{SPAN}-01-more")).is_none());
    }

    #[test]
    fn what_is_not_right_counts_as_absent() {
        let (no_trace, no_span) = ("0".repeat(32), "0".repeat(16));
        for text in [
            String::new(),
            "00".to_owned(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{no_trace}-{SPAN}-01"),
            format!("00-{TRACE}-{no_span}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{SPAN}-{TRACE}-01"),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
