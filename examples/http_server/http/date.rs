//! The time, as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of such a text.
const LENGTH: usize = 29;

/// The text of the second that was asked for last.
#[derive(Debug)]
pub struct Date {
    second: u64,
    text: [u8; LENGTH],
}

impl Date {
    pub fn new() -> Date {
        Date { second: 0, text: write(0) }
    }

    /// The text for now. It is written anew when the second has changed.
    #[inline]
    pub fn now(&mut self) -> &[u8; LENGTH] {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second {
            *self = Date { second, text: write(second) };
        }
        &self.text
    }
}

/// The text for a second since 1970.
pub fn write(second: u64) -> [u8; LENGTH] {
    const WEEKDAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let (days, time) = (second / 86_400, second % 86_400);

    let (mut year, mut day) = (1970, days);
    while day >= year_days(year) && year < 9999 {
        day -= year_days(year);
        year += 1;
    }
    let mut month = 0;
    while month < 11 && day >= month_days(year, month) {
        day -= month_days(year, month);
        month += 1;
    }

    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let name = |names: &[u8], at: u64| -> [u8; 3] { std::array::from_fn(|i| names[at as usize * 3 + i]) };
    text[..3].copy_from_slice(&name(WEEKDAYS, days % 7));
    text[8..11].copy_from_slice(&name(MONTHS, month));
    for (at, number) in
        [(5, day + 1), (12, year / 100), (14, year), (17, time / 3600), (20, time / 60 % 60), (23, time % 60)]
    {
        text[at] = b'0' + (number / 10 % 10) as u8;
        text[at + 1] = b'0' + (number % 10) as u8;
    }
    text
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn year_days(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

/// `month` counts from 0.
fn month_days(year: u64, month: u64) -> u64 {
    match month {
        1 => 28 + u64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}
