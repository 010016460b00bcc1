//! PostgreSQL's `numeric`: digits to the base of 10,000.

use bytes::{BufMut, BytesMut};
use thalweg_base::{Error, Result};

use super::message::Body;

/// A decimal number, from its digits as text.
pub fn write(buffer: &mut BytesMut, digits: String, binary: bool) {
    if !binary {
        buffer.put_slice(digits.as_bytes());
        return;
    }
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.as_str()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let mut groups: Vec<i16> = vec![];
    let head = whole.len() % 4;
    let mut push = |text: &str, width: usize| {
        let value = text.bytes().fold(0, |n, b| n * 10 + i16::from(b - b'0'));
        groups.push(value * 10_i16.pow((width - text.len()) as u32));
    };
    if head > 0 {
        push(&whole[..head], head);
    }
    whole.as_bytes()[head..].chunks(4).for_each(|c| push(ascii(c), 4));
    let mut weight = groups_of(whole) - 1;
    fraction.as_bytes().chunks(4).for_each(|c| {
        let value = c.iter().fold(0, |n, b| n * 10 + i16::from(b - b'0'));
        groups.push(value * 10_i16.pow(4 - c.len() as u32));
    });
    let leading = groups.iter().take_while(|g| **g == 0).count();
    groups.drain(..leading);
    weight -= leading as i16;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    buffer.put_u16(groups.len() as u16);
    buffer.put_i16(weight);
    buffer.put_u16(if negative && !groups.is_empty() { 0x4000 } else { 0 });
    buffer.put_u16(fraction.len() as u16);
    groups.iter().for_each(|g| buffer.put_i16(*g));
}

fn ascii(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).unwrap_or_default()
}

fn groups_of(whole: &str) -> i16 {
    whole.len().div_ceil(4) as i16
}

/// Groups that a number of a client may have: far more than a decimal holds.
const GROUPS_MAX: u16 = 64;

/// A number as text.
pub fn read(mut body: Body) -> Result<String> {
    let count = body.i16()? as u16;
    let weight = body.i16()?;
    let sign = body.i16()? as u16;
    let scale = body.i16()? as u16 as usize;
    let far = |n: i16| n.unsigned_abs() > GROUPS_MAX;
    if count > GROUPS_MAX || far(weight) || scale > 4 * usize::from(GROUPS_MAX) {
        return Err(Error::user("a number has more digits than a decimal holds").code("22003"));
    }
    let mut text = String::new();
    match sign {
        0 => {}
        0x4000 => text.push('-'),
        _ => {
            return Err(Error::user("NaN and Infinity are no values of a decimal").code("22003"));
        }
    }
    let mut groups = vec![];
    for _ in 0..count {
        match body.i16()? {
            group @ 0..=9999 => groups.push(group),
            _ => return Err(Error::user("a number of the client is broken").code("08P01")),
        }
    }
    body.end()?;
    let group = |place: i16| {
        usize::try_from(weight - place).ok().and_then(|i| groups.get(i)).copied().unwrap_or(0)
    };
    for place in (0..=weight.max(0)).rev() {
        text.push_str(&format!("{:04}", group(place)));
    }
    let mut fraction = String::new();
    for place in 1..=scale.div_ceil(4) as i16 {
        fraction.push_str(&format!("{:04}", group(-place)));
    }
    fraction.truncate(scale);
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(&fraction);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_there_and_back() {
        for (number, expected) in [
            ("0", "0000"),
            ("0.00", "0000.00"),
            ("1", "0001"),
            ("-1", "-0001"),
            ("12345.678", "00012345.678"),
            ("10000", "00010000"),
            ("0.0001", "0000.0001"),
            ("0.00000001", "0000.00000001"),
            (
                "-99999999999999999999999999999999999.999",
                "-099999999999999999999999999999999999.999",
            ),
            ("123400000000", "123400000000"),
        ] {
            let mut buffer = BytesMut::new();
            write(&mut buffer, number.into(), true);
            assert_eq!(read(Body(buffer.freeze())).unwrap(), expected, "{number}");
        }
    }

    #[test]
    fn broken_numbers_are_errors() {
        for bytes in
            [&[][..], &[0, 1], &[0, 1, 0, 0, 0, 0, 0, 0], &[0, 1, 0, 0, 0, 0, 0, 0, 0x7f, 0]]
        {
            read(Body(bytes.to_vec().into())).unwrap_err();
        }
        let nan = [0, 0, 0, 0, 0xc0, 0, 0, 0];
        read(Body(nan.to_vec().into())).unwrap_err();
    }
}
