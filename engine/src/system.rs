//! The clock and the random source, passed in.
//!
//! Nothing in the engine asks the operating system for the time or for random bytes except through a [`System`], so a
//! test or a replay decides both.

use std::io;

/// The present time and random bytes.
pub trait System: Send + Sync {
    /// Nanoseconds since 1970-01-01T00:00:00 UTC, on the clock that the files' times are taken from.
    fn unix_ns(&self) -> i128;

    /// Fills the buffer with random bytes.
    ///
    /// # Errors
    /// When the random source fails.
    fn random(&self, buffer: &mut [u8]) -> io::Result<()>;
}

/// The operating system's clock and random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsSystem;

impl System for OsSystem {
    fn unix_ns(&self) -> i128 {
        #[expect(clippy::disallowed_methods, reason = "this is the door that callers pass in")]
        let now = std::time::SystemTime::now();
        match now.duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
            Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |ns| -ns),
        }
    }

    fn random(&self, buffer: &mut [u8]) -> io::Result<()> {
        getrandom::fill(buffer).map_err(io::Error::other)
    }
}

/// The present time as records carry it: UTC, whole seconds, `2026-11-30T19:33:00+00:00`, with its quotes.
pub(crate) fn timestamp(system: &dyn System) -> Vec<u8> {
    timestamp_of(i64::try_from(system.unix_ns().div_euclid(1_000_000_000)).unwrap_or(i64::MAX))
}

fn timestamp_of(unix_seconds: i64) -> Vec<u8> {
    // Beyond the years 1 to 9999 the format has no spelling; a clock that far off is clamped.
    let first =
        time::OffsetDateTime::UNIX_EPOCH.replace_year(1).map_or(0, time::OffsetDateTime::unix_timestamp);
    let last = 253_402_300_799;
    let time = time::OffsetDateTime::from_unix_timestamp(unix_seconds.clamp(first, last))
        .unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    // Every append spells one, and formatting it takes longer than all else that the append computes.
    let mut text = *b"\"0000-00-00T00:00:00+00:00\"";
    let century = u8::try_from(year / 100).unwrap_or(0);
    let of_century = u8::try_from(year % 100).unwrap_or(0);
    let pairs = [century, of_century, u8::from(month), day, hour, minute, second];
    for (value, at) in pairs.into_iter().zip([1, 3, 6, 9, 12, 15, 18]) {
        text[at] += value / 10;
        text[at + 1] += value % 10;
    }
    text.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_whole_seconds() {
        let cases = [
            (0, "\"1970-01-01T00:00:00+00:00\""),
            (1_796_067_180, "\"2026-11-30T19:33:00+00:00\""),
            (951_782_400, "\"2000-02-29T00:00:00+00:00\""),
            (-1, "\"1969-12-31T23:59:59+00:00\""),
            (i64::MAX, "\"9999-12-31T23:59:59+00:00\""),
            (i64::MIN, "\"0001-01-01T00:00:00+00:00\""),
        ];
        for (seconds, text) in cases {
            assert_eq!(String::from_utf8(timestamp_of(seconds)).unwrap(), text);
        }
    }
}
