//! Durations as people write them: `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

const UNITS: [(&str, u64); 6] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 86_400 * 1_000_000_000),
];

/// A duration above zero: a term.
pub(crate) fn above_zero(text: &str) -> Result<Duration, String> {
    match any(text)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// A duration, or zero, which may be written without a unit: a wait.
pub(crate) fn any(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err("must not be negative".to_owned());
    }
    let mut rest = text;
    let mut nanos: u64 = 0;
    while !rest.is_empty() {
        let (number, unit, after) = part(rest)?;
        rest = after;
        nanos = number
            .checked_mul(unit)
            .and_then(|part| nanos.checked_add(part))
            .ok_or_else(|| "is too long: at most 213503 days".to_owned())?;
    }
    if text.is_empty() { Err(help("is empty")) } else { Ok(Duration::from_nanos(nanos)) }
}

/// The first number, its unit in nanoseconds, and what follows.
fn part(text: &str) -> Result<(u64, u64, &str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    if number.is_empty() {
        return Err(help("is not a duration"));
    }
    let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (name, after) = rest.split_at(letters);
    if name.is_empty() && after.is_empty() {
        return Err(help(&format!("has no unit after {number}")));
    }
    let unit = UNITS.iter().find(|(unit, _)| *unit == name);
    let (_, unit) = unit.ok_or_else(|| help("is not a duration"))?;
    let number = number.parse().map_err(|_| "is too long: at most 213503 days".to_owned())?;
    Ok((number, *unit, after))
}

fn help(what: &str) -> String {
    format!("{what}; write whole numbers with units, such as 500ms, 30s, 5m or 1h30m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        let table = [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1m1s1ms", 61_001),
        ];
        for (text, millis) in table {
            assert_eq!(above_zero(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(any("0"), Ok(Duration::ZERO));
        assert_eq!(any("0s"), Ok(Duration::ZERO));
        assert_eq!(any("250us"), Ok(Duration::from_micros(250)));
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        let table = [
            ("0s", "longer than zero"),
            ("0", "longer than zero"),
            ("-5s", "negative"),
            ("30", "no unit after 30"),
            ("", "empty"),
            ("s", "not a duration"),
            ("5 s", "not a duration"),
            ("1.5s", "not a duration"),
            ("5s5", "no unit after 5"),
            ("5weeks", "not a duration"),
            ("9999999999999999999999s", "too long"),
            ("213504d", "too long"),
            ("213503d213503d", "too long"),
            ("5\u{e9}", "not a duration"),
        ];
        for (text, reason) in table {
            let error = above_zero(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
