//! Calls and messages in the D-Bus specification's wire format ("Message Protocol", "Marshaling"). What does not parse is
//! an error and never a panic.

const METHOD_CALL: u8 = 1;
pub(super) const METHOD_RETURN: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const SIGNAL: u8 = 4;

/// `NO_AUTO_START`: nobody is started to be asked.
const FLAGS: u8 = 2;

/// A method call whose arguments are strings.
#[derive(Debug, Clone, Copy)]
pub(in crate::systemd) struct Call<'a> {
    pub(in crate::systemd) destination: &'a str,
    pub(in crate::systemd) path: &'a str,
    pub(in crate::systemd) interface: &'a str,
    pub(in crate::systemd) member: &'a str,
    pub(in crate::systemd) arguments: &'a [&'a str],
}

impl Call<'_> {
    pub(in crate::systemd) fn bytes(&self, serial: u32) -> Vec<u8> {
        let mut fields = Writer::default();
        fields.field(1, b'o', self.path);
        fields.field(2, b's', self.interface);
        fields.field(3, b's', self.member);
        fields.field(6, b's', self.destination);
        let mut body = Writer::default();
        if !self.arguments.is_empty() {
            fields.signature(&"s".repeat(self.arguments.len()));
            for argument in self.arguments {
                body.string(argument);
            }
        }
        message(METHOD_CALL, serial, &fields.bytes, &body.bytes)
    }
}

/// A message as it arrived.
#[derive(Debug, Default)]
pub(in crate::systemd) struct Message {
    pub(super) kind: u8,
    pub(super) reply_to: Option<u32>,
    /// The error's name.
    pub(super) error: Option<String>,
    /// The signal's name.
    pub(in crate::systemd) member: String,
    pub(in crate::systemd) body: Vec<u8>,
}

impl Message {
    /// Takes the header fields, `a(yv)`; those that matter have values of the types s, o, g and u.
    pub(super) fn take_fields(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader { bytes, at: 0 };
        while reader.at < bytes.len() {
            reader.align(8);
            let code = reader.byte()?;
            match reader.signature()?.as_str() {
                "u" => {
                    let value = reader.u32()?;
                    if code == 5 {
                        self.reply_to = Some(value);
                    }
                }
                "s" | "o" => {
                    let value = reader.string()?;
                    match code {
                        3 => self.member = value,
                        4 => self.error = Some(value),
                        _ => {}
                    }
                }
                "g" => drop(reader.signature()?),
                _ => return None,
            }
        }
        Some(())
    }
}

/// The strings that a body begins with.
pub(in crate::systemd) fn strings(body: &[u8]) -> impl Iterator<Item = String> {
    let mut reader = Reader { bytes: body, at: 0 };
    std::iter::from_fn(move || reader.string())
}

pub(in crate::systemd) struct Reader<'a> {
    pub(in crate::systemd) bytes: &'a [u8],
    pub(in crate::systemd) at: usize,
}

impl Reader<'_> {
    pub(in crate::systemd) fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub(in crate::systemd) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(in crate::systemd) fn u32(&mut self) -> Option<u32> {
        self.align(4);
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(in crate::systemd) fn length(&mut self) -> Option<usize> {
        self.u32().and_then(|value| usize::try_from(value).ok())
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let text = String::from_utf8(self.take(length)?.to_vec()).ok()?;
        (self.byte()? == 0).then_some(text)
    }

    pub(in crate::systemd) fn string(&mut self) -> Option<String> {
        let length = self.length()?;
        self.text(length)
    }

    pub(in crate::systemd) fn signature(&mut self) -> Option<String> {
        let length = self.byte()?;
        self.text(usize::from(length))
    }
}

/// Appends values in the wire's alignment.
#[derive(Default)]
pub(in crate::systemd) struct Writer {
    pub(in crate::systemd) bytes: Vec<u8>,
}

impl Writer {
    pub(in crate::systemd) fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    pub(in crate::systemd) fn u32(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    pub(in crate::systemd) fn string(&mut self, text: &str) {
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    /// A header field of a one-letter string type.
    pub(in crate::systemd) fn field(&mut self, code: u8, kind: u8, text: &str) {
        self.align(8);
        self.bytes.extend([code, 1, kind, 0]);
        self.string(text);
    }

    /// Header field 8, the body's signature, at most 255 letters.
    pub(in crate::systemd) fn signature(&mut self, text: &str) {
        self.align(8);
        self.bytes.extend([8, 1, b'g', 0, u8::try_from(text.len()).unwrap_or(u8::MAX)]);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }
}

/// Puts the fixed header in front of header fields and body.
pub(in crate::systemd) fn message(kind: u8, serial: u32, fields: &[u8], body: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.bytes.extend([b'l', kind, FLAGS, 1]);
    writer.u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    writer.u32(serial);
    writer.u32(u32::try_from(fields.len()).unwrap_or(u32::MAX));
    writer.bytes.extend(fields);
    writer.align(8);
    writer.bytes.extend(body);
    writer.bytes
}
