//! Times as they are written in a configuration file: `"45s"`, `"500ms"`, `"2min"`, `"1h"`, or a number of seconds.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

const FORMS: &str = "\"45s\", \"500ms\", \"2min\", \"1h\", or a whole number of seconds";

/// A time as it is written in a configuration file, for arguments of the command line too.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    millis(text).and_then(|millis| millis.ok_or_else(too_large)).map(Duration::from_millis)
}

fn too_large() -> String {
    "more than can be counted".to_owned()
}

/// The milliseconds of a text; `None` when they are more than fit.
fn millis(text: &str) -> Result<Option<u64>, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 1,
        "s" | "" => 1000,
        "min" | "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("not a time: write {FORMS}")),
    };
    if number.is_empty() {
        return Err(format!("not a time: write {FORMS}"));
    }
    Ok(number.parse().ok().and_then(|number: u64| number.checked_mul(factor)))
}

/// A time with bounds, all in milliseconds; `STEP` is what it must be a multiple of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period<const MIN: u64, const MAX: u64, const STEP: u64 = 1>(pub(super) Duration);

impl<const MIN: u64, const MAX: u64, const STEP: u64> Period<MIN, MAX, STEP> {
    fn from_millis<E: de::Error>(millis: Option<u64>) -> Result<Self, E> {
        let allowed = || format!("allowed: {} to {}", Millis(MIN), Millis(MAX));
        match millis {
            Some(millis) if (MIN..=MAX).contains(&millis) && millis % STEP == 0 => {
                Ok(Self(Duration::from_millis(millis)))
            }
            Some(millis) if (MIN..=MAX).contains(&millis) => {
                Err(E::custom(format_args!("whole seconds only, {}", allowed())))
            }
            _ => Err(E::custom(allowed())),
        }
    }
}

impl<'de, const MIN: u64, const MAX: u64, const STEP: u64> Deserialize<'de> for Period<MIN, MAX, STEP> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Time::<MIN, MAX, STEP>)
    }
}

impl<const MIN: u64, const MAX: u64, const STEP: u64> Serialize for Period<MIN, MAX, STEP> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Cannot be cut off: MAX is a u64 of milliseconds.
        serializer.collect_str(&Millis(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)))
    }
}

struct Time<const MIN: u64, const MAX: u64, const STEP: u64>;

impl<const MIN: u64, const MAX: u64, const STEP: u64> Visitor<'_> for Time<MIN, MAX, STEP> {
    type Value = Period<MIN, MAX, STEP>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a time: {FORMS}")
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Self::Value, E> {
        Period::from_millis(u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000)))
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Self::Value, E> {
        Period::from_millis(seconds.checked_mul(1000))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Period::from_millis(millis(text).map_err(E::custom)?)
    }
}

/// Milliseconds in the largest unit that takes them whole.
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n > 60_000 && n % 60_000 == 0 => write!(f, "{}min", n / 60_000),
            n if n % 1000 == 0 => write!(f, "{}s", n / 1000),
            n => write!(f, "{n}ms"),
        }
    }
}
