//! Thinning a collection of readings: what may go, so that years of a sensor fit the cap.
//!
//! The rule, for each series by itself: the last 48 records stay; besides those, the last record of each UTC day stays
//! for 396 days back from the newest record of that series. *Last* means later in the file, the order in which readings
//! were taken, whatever their clock said. What has no readable `ts` stays.
//!
//! The wall clock has no say. A record far in the future still could: one reading under a clock that jumped ahead by
//! years would put the whole history out of reach. So a jump ahead by more than the kept days is believed only when
//! more records than are kept anyway lie beyond it.

use std::collections::{HashMap, HashSet};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::json;
use crate::op::Records;
use crate::record;

/// What to keep of a collection of readings. The default is the seed's: 48 records, 396 days, one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainPolicy {
    /// The field whose value tells series apart, the reader's `key`; `None` makes all records one series.
    pub key: Option<String>,
    /// How many of the last records of each series are kept.
    pub records_kept: usize,
    /// For how many days back from the newest record of a series the last record of each UTC day is kept.
    pub days_kept: u32,
}

impl Default for RetainPolicy {
    fn default() -> Self {
        Self { key: None, records_kept: 48, days_kept: 396 }
    }
}

/// What a retain removed, or would remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retained {
    /// The records that went, in the order of the file; their count is exact, the list is whole.
    pub removed: Records,
    /// How many records stayed, those without a readable time among them.
    pub kept: u64,
    /// How many series there are.
    pub series: u64,
}

/// A record's place in the sequence that was given, and its day.
#[derive(Clone, Copy)]
struct Reading {
    position: usize,
    day: i32,
}

/// Decides which of these records go, by their position. Returns the positions and the number of series.
pub(crate) fn outdated<'a>(
    records: impl Iterator<Item = &'a [u8]>,
    policy: &RetainPolicy,
) -> (HashSet<usize>, u64) {
    let mut series: HashMap<Vec<u8>, Vec<Reading>> = HashMap::new();
    for (position, stored) in records.enumerate() {
        let mut name = Vec::new();
        if let Some(key) = &policy.key {
            json::canonical(&mut name, record::value_of(stored, key).unwrap_or(b"null"));
        }
        let readings = series.entry(name).or_default();
        if let Some(day) = record::value_of(stored, "ts").and_then(day_of) {
            readings.push(Reading { position, day });
        }
    }
    let count = series.len() as u64;
    let outdated = series.into_values().flat_map(|readings| outdated_of_series(&readings, policy)).collect();
    (outdated, count)
}

fn outdated_of_series(readings: &[Reading], policy: &RetainPolicy) -> Vec<usize> {
    let older = &readings[..readings.len().saturating_sub(policy.records_kept)];
    let days_kept = i64::from(policy.days_kept);
    let Some(newest) = newest_day(readings, policy) else { return Vec::new() };
    let mut days = HashSet::new();
    // From the end, so that the first record met of a day is its last. The last records count as their days' last.
    let recent = readings[older.len()..].iter().map(|reading| reading.day);
    days.extend(recent);
    let mut outdated = Vec::new();
    for reading in older.iter().rev() {
        let reached = newest - i64::from(reading.day) <= days_kept;
        if !reached || !days.insert(reading.day) {
            outdated.push(reading.position);
        }
    }
    outdated
}

/// The day of the newest record that is no mere jump of a clock.
fn newest_day(readings: &[Reading], policy: &RetainPolicy) -> Option<i64> {
    let mut days: Vec<i64> = readings.iter().map(|reading| i64::from(reading.day)).collect();
    days.sort_unstable_by(|a, b| b.cmp(a));
    let jump = |pair: &[i64]| pair[0] - pair[1] > i64::from(policy.days_kept);
    // Every jump with no more records beyond it than are kept anyway is stepped over.
    let beyond = days.windows(2).take(policy.records_kept).rposition(jump);
    beyond.map_or(days.first(), |position| days.get(position + 1)).copied()
}

/// The UTC day of a `ts`, given as JSON text.
fn day_of(ts: &[u8]) -> Option<i32> {
    let text = ts.starts_with(b"\"").then(|| json::unescape(ts))?;
    let time = OffsetDateTime::parse(&text, &Rfc3339).ok()?;
    Some(time.to_offset(time::UtcOffset::UTC).to_julian_day())
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::{Duration, Time};

    /// Runs the rule over `(series, ts)` and returns the positions that go.
    fn outdated_positions(readings: &[(&str, String)], policy: &RetainPolicy) -> Vec<usize> {
        let texts: Vec<String> = readings
            .iter()
            .map(|(sensor, ts)| format!("{{\"id\":\"x\",\"ts\":\"{ts}\",\"sensor\":\"{sensor}\"}}"))
            .collect();
        let (positions, _) = outdated(texts.iter().map(String::as_bytes), policy);
        let mut positions: Vec<usize> = positions.into_iter().collect();
        positions.sort_unstable();
        positions
    }

    fn by_sensor() -> RetainPolicy {
        RetainPolicy { key: Some("sensor".to_owned()), ..RetainPolicy::default() }
    }

    fn text(time: OffsetDateTime) -> String {
        time.format(&Rfc3339).unwrap()
    }

    fn start() -> OffsetDateTime {
        OffsetDateTime::parse("2025-03-01T00:00:00Z", &Rfc3339).unwrap()
    }

    #[test]
    fn the_last_48_and_the_last_of_each_day_stay() {
        // One reading an hour for 10 days.
        let readings: Vec<_> = (0..240).map(|hour| ("a", text(start() + Duration::hours(hour)))).collect();
        let gone = outdated_positions(&readings, &by_sensor());
        let stays = |position: usize| position >= 240 - 48 || position % 24 == 23;
        assert_eq!(gone, (0..240).filter(|position| !stays(*position)).collect::<Vec<_>>());
    }

    #[test]
    fn a_day_of_the_last_48_keeps_no_second_record() {
        // 50 readings on one day: the two oldest are neither among the last 48 nor the last of their day.
        let readings: Vec<_> =
            (0..50).map(|minute| ("a", text(start() + Duration::minutes(minute)))).collect();
        assert_eq!(outdated_positions(&readings, &by_sensor()), [0, 1]);
    }

    #[test]
    fn days_end_at_396_back_from_the_newest_of_the_series() {
        let readings: Vec<_> = (0..500).map(|day| ("a", text(start() + Duration::days(day)))).collect();
        let gone = outdated_positions(&readings, &by_sensor());
        assert_eq!(gone, (0..103).collect::<Vec<_>>(), "day 499 is the newest, 499 - 396 = 103 stays");
        let mut two = readings;
        two.extend((0..10).map(|day| ("old", text(start() - Duration::days(5000) + Duration::days(day)))));
        assert_eq!(
            outdated_positions(&two, &by_sensor()),
            gone,
            "a series that ended long ago is not aged by another"
        );
    }

    #[test]
    fn a_day_is_a_utc_day_whatever_the_offset_says() {
        // Before and after the change to summer time in Rome: 23:30 local is 22:30Z, then 21:30Z.
        let policy = RetainPolicy { records_kept: 1, ..by_sensor() };
        let readings = [
            ("a", "2025-03-29T23:30:00+01:00".to_owned()),
            ("a", "2025-03-30T00:30:00+01:00".to_owned()),
            ("a", "2025-03-30T01:30:00+01:00".to_owned()),
            ("a", "2025-03-30T23:30:00+02:00".to_owned()),
            ("a", "2025-03-31T00:30:00+02:00".to_owned()),
            ("a", "2025-03-31T02:30:00+02:00".to_owned()),
        ];
        // UTC days: 29, 29, 30, 30, 30, 31.
        assert_eq!(outdated_positions(&readings, &policy), [0, 2, 3]);
        let edges = [
            ("a", "2025-01-01T23:59:59.999Z".to_owned()),
            ("a", "2025-01-02T00:00:00Z".to_owned()),
            ("a", "2025-01-02T00:00:01Z".to_owned()),
        ];
        assert_eq!(outdated_positions(&edges, &policy), [1]);
    }

    #[test]
    fn a_clock_that_jumps_ahead_does_not_age_out_the_history() {
        let mut readings: Vec<_> = (0..400).map(|day| ("a", text(start() + Duration::days(day)))).collect();
        let before = outdated_positions(&readings, &by_sensor());
        assert_eq!(before, [0, 1, 2]);
        for jumped in 0..48 {
            readings.push(("a", text(start() + Duration::days(5000) + Duration::hours(jumped))));
        }
        assert_eq!(outdated_positions(&readings, &by_sensor()), before, "48 readings do not make it true");
        readings.push(("a", text(start() + Duration::days(5003))));
        assert_eq!(outdated_positions(&readings, &by_sensor()).len(), 401, "49 do: only the last 48 stay");
    }

    #[test]
    fn a_clock_that_jumps_back_costs_no_more_than_the_rule_says() {
        let mut readings: Vec<_> = (0..100).map(|day| ("a", text(start() + Duration::days(day)))).collect();
        readings.insert(50, ("a", text(OffsetDateTime::UNIX_EPOCH)));
        assert_eq!(outdated_positions(&readings, &by_sensor()), [50]);
        readings.push(("a", text(OffsetDateTime::UNIX_EPOCH)));
        assert_eq!(outdated_positions(&readings, &by_sensor()), [50], "the last 48 stay, whatever they say");
    }

    #[test]
    fn what_has_no_readable_time_stays_and_counts_for_nothing() {
        let policy = RetainPolicy { records_kept: 1, ..RetainPolicy::default() };
        let texts = [
            r#"{"id":"1","ts":"2025-01-01T01:00:00Z"}"#,
            r#"{"id":"2"}"#,
            r#"{"id":"3","ts":null}"#,
            r#"{"id":"4","ts":"yesterday"}"#,
            r#"{"id":"5","ts":1735689600}"#,
            r#"{"id":"6","ts":"2025-01-01"}"#,
            r#"{"id":"7","ts":"2025-01-01T02:00:00Z","ts":"2025-01-01T03:00:00Z"}"#,
            r#"{"id":"8","ts":"2025-01-01T01:30:00Z"}"#,
        ];
        let (gone, series) = outdated(texts.iter().map(|text| text.as_bytes()), &policy);
        assert_eq!((gone, series), (HashSet::from([0, 6]), 1));
    }

    #[test]
    fn series_are_told_apart_by_the_value_of_the_key() {
        let policy = RetainPolicy { records_kept: 1, key: Some("k".to_owned()), ..RetainPolicy::default() };
        let noon = text(start().replace_time(Time::MIDNIGHT));
        let texts: Vec<String> = ["1", "1.0", "\"1\"", "null", "[1]", "true"]
            .iter()
            .map(|key| format!("{{\"ts\":\"{noon}\",\"k\":{key}}}"))
            .chain([format!("{{\"ts\":\"{noon}\"}}")])
            .collect();
        let (gone, series) = outdated(texts.iter().map(String::as_bytes), &policy);
        assert_eq!((gone, series), (HashSet::from([0, 3]), 5), "1 is 1.0, and no key is null");
    }
}
