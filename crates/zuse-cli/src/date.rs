//! Dates as the ZFS commands print them, in local time.

use std::cell::RefCell;

use jiff::Timestamp;
use jiff::tz::TimeZone;

thread_local! {
    /// The time zone of the caller whose command this thread runs, if it is not this process's.
    static ZONE: RefCell<Option<TimeZone>> = const { RefCell::new(None) };
}

/// Sets the time zone of the dates that this thread prints: that of a `TZ` value, or else the
/// system's.
pub fn show_in(name: Option<&str>) {
    let zone = name.and_then(|n| TimeZone::get(n.trim_start_matches(':')).ok());
    ZONE.set(zone);
}

fn zoned(seconds: u64) -> Option<jiff::Zoned> {
    let stamp = Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    let zone = ZONE.with_borrow(Clone::clone);
    Some(stamp.to_zoned(zone.unwrap_or_else(TimeZone::system)))
}

/// Seconds since 1970 of `2026-11-21`, `2026-11-21 19:22` or `2026-11-21 19:22:45`, in local time.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let time = text.parse::<jiff::civil::DateTime>().ok();
    let date = || text.parse::<jiff::civil::Date>().ok();
    let time = time.or_else(|| Some(date()?.at(0, 0, 0, 0)))?;
    let zone = ZONE.with_borrow(Clone::clone);
    let zoned = time.to_zoned(zone.unwrap_or_else(TimeZone::system)).ok()?;
    u64::try_from(zoned.timestamp().as_second()).ok()
}

fn print(seconds: u64, format: &str) -> String {
    zoned(seconds).map_or_else(|| seconds.to_string(), |z| z.strftime(format).to_string())
}

/// `Sat Nov 21 19:08 2026`, as `creation`: [`MINUTES`] characters. The last one is cached, since
/// snapshots of many datasets are mostly of the same minute.
pub fn minutes(seconds: u64) -> String {
    /// Later ones have no date.
    const END: u64 = 253_402_200_000;
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    if seconds > END {
        return seconds.to_string();
    }
    LAST.with_borrow_mut(|(minute, text)| {
        if *minute != seconds / 60 {
            (*minute, *text) = (seconds / 60, print(seconds, "%a %b %e %k:%M %Y"));
        }
        text.clone()
    })
}

/// Characters of [`minutes`].
pub const MINUTES: usize = 21;

/// `Sat Nov 21 19:22:45 2026`, as in `zpool status`.
pub fn ctime(seconds: u64) -> String {
    print(seconds, "%a %b %e %H:%M:%S %Y")
}

/// `Sat Nov 21 19:22:45 UTC 2026`, as in JSON.
pub fn with_zone(seconds: u64) -> String {
    print(seconds, "%a %b %e %H:%M:%S %Z %Y")
}

/// As [`ctime`], of a time that may lie before 1970.
pub fn ctime_signed(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(
        |_| seconds.to_string(),
        |stamp| {
            let zoned = stamp.to_zoned(TimeZone::system());
            zoned.strftime("%a %b %e %H:%M:%S %Y").to_string()
        },
    )
}

/// `Nov 21 2026 19:22:45.000000000`, as in `zpool events`.
pub fn event(seconds: i64, nanos: u32) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    format!("{}.{nanos:09}", print(seconds, "%b %e %Y %H:%M:%S"))
}

/// `2026-11-21.19:22:45`, as in `zpool history`.
pub fn history(seconds: u64) -> String {
    print(seconds, "%Y-%m-%d.%H:%M:%S")
}

/// `Nov 21 19:22`, as `ls -l`.
pub fn listing(seconds: i64) -> String {
    Timestamp::from_second(seconds)
        .map(|s| {
            s.to_zoned(TimeZone::system())
                .strftime("%Y-%m-%d %H:%M")
                .to_string()
        })
        .unwrap_or_else(|_| seconds.to_string())
}

/// `Sat Nov 21 19:22:45 2026` with the hour not padded by zeros, as `snapshots_changed`.
pub fn seconds(seconds: u64) -> String {
    print(seconds, "%a %b %e %k:%M:%S %Y")
}

/// `21:08:45`, now: for lines of progress.
pub fn clock_text() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S").to_string()
}
