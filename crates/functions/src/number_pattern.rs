//! PostgreSQL's patterns of numbers, such as `'FM9,990.00'`.
//!
//! The pattern has a slot for each digit. A number is rounded to the slots after the point, and laid
//! out from the point to the left: what is left over are blanks, or zeros from the first `0` on.
//! The sign stands before the first slot that shows something, unless the pattern has a place of
//! its own for it.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result as DfResult;
use thalweg_base::{Error, Result};

/// Digits that a double has for sure.
const DOUBLE_DIGITS: usize = 15;
const ROMAN_WIDTH: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// `9`, or `0` where the digit is shown in any case.
    Digit {
        zero: bool,
    },
    Point,
    /// `,` and `G`
    Comma,
    /// `L`: the locale C has no sign of its currency.
    Currency,
    /// `MI`
    Minus,
    /// `PL`
    Plus,
    /// `SG`
    Sign,
    Ordinal {
        upper: bool,
    },
    Roman {
        upper: bool,
    },
    Text(char),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Anchored {
    #[default]
    No,
    Before,
    After,
}

/// A pattern that is cut up.
#[derive(Debug, Default)]
pub struct Pattern {
    pub(super) parts: Vec<Part>,
    /// Slots before and after the point.
    pub(super) before: usize,
    pub(super) after: usize,
    /// The first slot before the point that is a `0`.
    first_zero: Option<usize>,
    /// Slots up to the last `0`.
    last_zero: usize,
    pub(super) has_point: bool,
    /// `FM`
    pub(super) tight: bool,
    /// `S`
    pub(super) sign: Anchored,
    /// `PR`
    pub(super) brackets: bool,
    pub(super) has_minus: bool,
    pub(super) has_plus: bool,
    pub(super) is_roman: bool,
    /// Digits after `V`.
    pub(super) shift: Option<usize>,
    /// `EEEE`
    pub(super) scientific: bool,
}

fn wrong(what: &str) -> Error {
    Error::user(format!("the pattern of a number: {what}")).code("42601")
}

const WORDS: &[&str] =
    &["EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", "B", "D", "G", "L", "S", "V"];

impl Pattern {
    pub fn parse(text: &str) -> Result<Pattern> {
        let mut pattern = Pattern::default();
        let mut slots_before_sign = 0;
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let word = WORDS.iter().find(|word| {
                rest.get(..word.len())
                    .is_some_and(|head| head == **word || head == word.to_lowercase())
            });
            let lower = c.is_ascii_lowercase();
            let length = word.map_or(c.len_utf8(), |word| word.len());
            let head = &rest[..length];
            rest = &rest[length..];
            match word {
                Some(&word) => {
                    pattern.word(word, lower, &mut slots_before_sign)?;
                }
                None => match c {
                    '9' | '0' => pattern.digit(c == '0')?,
                    ',' => pattern.parts.push(Part::Comma),
                    '.' => pattern.point()?,
                    '"' => {
                        let mut characters = rest.chars();
                        while let Some(c) = characters.next() {
                            match c {
                                '"' => break,
                                '\\' => pattern.parts.extend(characters.next().map(Part::Text)),
                                c => pattern.parts.push(Part::Text(c)),
                            }
                        }
                        rest = characters.as_str();
                    }
                    _ => pattern.parts.extend(head.chars().map(Part::Text)),
                },
            }
        }
        if pattern.sign == Anchored::Before && slots_before_sign == pattern.before {
            pattern.sign = Anchored::After;
        }
        Ok(pattern)
    }

    fn digit(&mut self, zero: bool) -> Result<()> {
        if self.brackets {
            return Err(wrong("digits stand before PR"));
        }
        if self.scientific {
            return Err(wrong("EEEE is its last part"));
        }
        if let (Some(shift), false) = (&mut self.shift, zero) {
            *shift += 1;
        } else if self.has_point {
            self.after += 1;
        } else {
            if zero && self.first_zero.is_none() {
                self.first_zero = Some(self.before);
            }
            self.before += 1;
        }
        if zero {
            self.last_zero = self.before + self.after;
        }
        self.parts.push(Part::Digit { zero });
        Ok(())
    }

    fn point(&mut self) -> Result<()> {
        if self.has_point {
            return Err(wrong("it has two points"));
        }
        if self.shift.is_some() {
            return Err(wrong("V stands in the place of a point"));
        }
        self.has_point = true;
        self.parts.push(Part::Point);
        Ok(())
    }

    fn word(&mut self, word: &str, lower: bool, slots_before_sign: &mut usize) -> Result<()> {
        let together = "S cannot stand beside PL, MI, SG or PR";
        match word {
            "FM" => self.tight = true,
            "B" | "SP" => {}
            "D" => self.point()?,
            "G" => self.parts.push(Part::Comma),
            "L" => self.parts.push(Part::Currency),
            "S" => {
                if self.sign != Anchored::No {
                    return Err(wrong("it has S twice"));
                }
                if self.has_plus || self.has_minus || self.brackets {
                    return Err(wrong(together));
                }
                if self.has_point {
                    self.sign = Anchored::After;
                } else {
                    self.sign = Anchored::Before;
                    *slots_before_sign = self.before;
                }
            }
            "MI" | "PL" | "SG" => {
                if self.sign != Anchored::No {
                    return Err(wrong(together));
                }
                self.has_minus |= word != "PL";
                self.has_plus |= word != "MI";
                self.parts.push(match word {
                    "MI" => Part::Minus,
                    "PL" => Part::Plus,
                    _ => Part::Sign,
                });
            }
            "PR" => {
                if self.sign != Anchored::No || self.has_plus || self.has_minus {
                    return Err(wrong(together));
                }
                self.brackets = true;
            }
            "RN" => {
                self.is_roman = true;
                self.parts.push(Part::Roman { upper: !lower });
            }
            "TH" => self.parts.push(Part::Ordinal { upper: !lower }),
            "V" => {
                if self.has_point {
                    return Err(wrong("V stands in the place of a point"));
                }
                self.shift = Some(0);
            }
            "EEEE" => {
                if self.tight || self.brackets || self.sign != Anchored::No || self.is_roman {
                    return Err(wrong("EEEE stands beside digits and a point alone"));
                }
                self.scientific = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes a number.
    pub fn write(&self, number: &Number) -> Result<String> {
        if self.is_roman {
            return Ok(self.roman(number));
        }
        if self.scientific {
            return Ok(number.scientific(self.after));
        }
        let Digits { negative, whole, fraction } =
            number.rounded(self.after, self.shift.unwrap_or(0));
        let slots = self.before + self.shift.unwrap_or(0);
        let too_long = whole.len() > slots;
        let (whole, fraction) = match too_long {
            true => ("#".repeat(slots), "#".repeat(self.after)),
            false => (whole, fraction),
        };
        let blanks = slots - whole.len();
        // `9.9` shows 0.1 as ` .1`.
        let hides_zero = whole == "0" && self.first_zero.is_none() && self.after > 0 && !too_long;
        // `FM` leaves out zeros at the end, but for those that a `0` asks for.
        let mut kept = fraction.len();
        if self.tight && self.has_point {
            kept = fraction.trim_end_matches('0').len();
            let asked = self.last_zero.saturating_sub(self.before);
            kept = kept.max(asked.min(fraction.len()));
        }
        // With nothing after the point, `FM` shows the zero before it after all.
        let hides_zero = hides_zero && !(self.tight && kept == 0);
        let mut out = Layout::default();
        let (mut before, mut after) = (0_usize, 0_usize);
        let mut passed_point = false;
        for part in &self.parts {
            match *part {
                Part::Digit { .. } if !passed_point => {
                    let slot = before;
                    before += 1;
                    let shown = match slot.checked_sub(blanks) {
                        Some(_) if hides_zero => None,
                        Some(digit) => whole.as_bytes().get(digit).map(|d| *d as char),
                        None => self.first_zero.is_some_and(|zero| zero <= slot).then_some('0'),
                    };
                    match shown {
                        Some(digit) => out.digit(digit),
                        None if !self.tight => out.blank(),
                        None => out.in_digits = false,
                    }
                }
                Part::Digit { .. } => {
                    out.in_digits = false;
                    if after < kept {
                        out.digit(fraction.as_bytes()[after] as char);
                    }
                    after += 1;
                }
                Part::Point => {
                    passed_point = true;
                    out.in_digits = false;
                    // Without a slot behind it there is nothing to part.
                    if self.after > 0 || too_long {
                        out.point();
                    }
                }
                // It parts digits: what stands before it must have shown one.
                Part::Comma => match (out.in_digits, self.tight) {
                    (true, _) => out.text.push(','),
                    (false, false) => out.text.push(' '),
                    (false, true) => {}
                },
                Part::Currency => out.text.push(' '),
                Part::Minus => match (negative, self.tight) {
                    (true, _) => out.text.push('-'),
                    (false, false) => out.text.push(' '),
                    (false, true) => {}
                },
                Part::Plus => match (negative, self.tight) {
                    (false, _) => out.text.push('+'),
                    (true, false) => out.text.push(' '),
                    (true, true) => {}
                },
                Part::Sign => out.text.push(if negative { '-' } else { '+' }),
                Part::Ordinal { upper } => {
                    if !negative && !self.has_point && !too_long {
                        out.text.push_str(ordinal(&whole, upper));
                    }
                }
                Part::Roman { .. } => {}
                Part::Text(c) => out.text.push(c),
            }
        }
        Ok(self.signed(out, negative))
    }

    /// Puts in the sign that has no place of its own.
    fn signed(&self, out: Layout, negative: bool) -> String {
        let Layout { mut text, first, end, in_digits: _ } = out;
        let (Some(first), end) = (first, end) else { return text };
        if self.brackets {
            let (open, close) = match (negative, self.tight) {
                (true, _) => ("<", ">"),
                (false, false) => (" ", " "),
                (false, true) => ("", ""),
            };
            text.insert_str(end, close);
            text.insert_str(first, open);
        } else if self.sign == Anchored::After {
            text.insert(end, if negative { '-' } else { '+' });
        } else if self.sign == Anchored::Before {
            text.insert(first, if negative { '-' } else { '+' });
        } else if !self.has_minus {
            match (negative, self.tight) {
                (true, _) => text.insert(first, '-'),
                (false, false) => text.insert(first, ' '),
                (false, true) => {}
            }
        }
        text
    }

    fn roman(&self, number: &Number) -> String {
        let Digits { negative, whole, .. } = number.rounded(0, 0);
        let mut text = match whole.parse::<u32>() {
            Ok(value @ 1..=3999) if !negative => roman(value),
            _ => "#".repeat(ROMAN_WIDTH),
        };
        if self.parts.contains(&Part::Roman { upper: false }) {
            text = text.to_lowercase();
        }
        if self.tight { text } else { format!("{text:>ROMAN_WIDTH$}") }
    }
}

/// What is written so far.
#[derive(Default)]
struct Layout {
    text: String,
    /// Where the first digit or the point stands.
    first: Option<usize>,
    /// Behind the last of them.
    end: usize,
    /// The slot before showed a digit.
    in_digits: bool,
}

impl Layout {
    fn digit(&mut self, digit: char) {
        self.first.get_or_insert(self.text.len());
        self.text.push(digit);
        self.end = self.text.len();
        self.in_digits = true;
    }

    fn point(&mut self) {
        self.digit('.');
        self.in_digits = false;
    }

    fn blank(&mut self) {
        self.text.push(' ');
        self.in_digits = false;
    }
}

fn roman(mut value: u32) -> String {
    const STEPS: [(u32, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let mut text = String::new();
    for (step, letters) in STEPS {
        while value >= step {
            text.push_str(letters);
            value -= step;
        }
    }
    text
}

/// `st`, `nd`, `rd` or `th` after a number.
pub fn ordinal(number: &str, upper: bool) -> &'static str {
    let digits: Vec<u8> = number.bytes().filter(u8::is_ascii_digit).collect();
    let tens = digits.iter().rev().nth(1);
    let suffix = match (tens, digits.last()) {
        (Some(b'1'), _) => ["th", "TH"],
        (_, Some(b'1')) => ["st", "ST"],
        (_, Some(b'2')) => ["nd", "ND"],
        (_, Some(b'3')) => ["rd", "RD"],
        _ => ["th", "TH"],
    };
    suffix[usize::from(upper)]
}

/// A number as it is written in full.
pub enum Number {
    /// `-12.50`
    Exact(String),
    Double(f64),
}

struct Digits {
    negative: bool,
    whole: String,
    fraction: String,
}

impl Number {
    /// With so many digits after the point, after it was moved.
    fn rounded(&self, digits: usize, shift: usize) -> Digits {
        let text = match self {
            Number::Exact(text) => text.clone(),
            Number::Double(value) => {
                let value = value * 10_f64.powi(shift as i32);
                let whole = format!("{:.0}", value.abs()).len();
                // What is beyond the digits of a double is not shown.
                let digits = digits.min(DOUBLE_DIGITS.saturating_sub(whole));
                let text = format!("{value:.digits$}");
                let negative = text.starts_with('-');
                let text = text.trim_start_matches('-');
                let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
                return Digits { negative, whole: whole.into(), fraction: fraction.into() };
            }
        };
        let (negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text.as_str()),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let mut all: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let mut point = whole.len() + shift;
        all.resize(all.len().max(point), b'0');
        let end = point + digits;
        let up = all.get(end).is_some_and(|d| *d >= b'5');
        all.resize(end, b'0');
        if up {
            let mut at = end;
            loop {
                if at == 0 {
                    all.insert(0, b'1');
                    point += 1;
                    break;
                }
                at -= 1;
                if all[at] == b'9' {
                    all[at] = b'0';
                } else {
                    all[at] += 1;
                    break;
                }
            }
        }
        let text = String::from_utf8(all).unwrap_or_default();
        let whole = text[..point].trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let fraction = &text[point..];
        let is_zero = whole == "0" && fraction.bytes().all(|d| d == b'0');
        Digits { negative: negative && !is_zero, whole: whole.into(), fraction: fraction.into() }
    }

    /// ` 1.50e+03`
    fn scientific(&self, digits: usize) -> String {
        let text = match self {
            Number::Double(value) => format!("{value:.digits$e}"),
            Number::Exact(text) => {
                let negative = text.starts_with('-');
                let plain = text.trim_start_matches('-');
                let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
                let all = format!("{whole}{fraction}");
                let zeros = all.len() - all.trim_start_matches('0').len();
                let significant = &all[zeros..];
                let sign = if negative { "-" } else { "" };
                if significant.is_empty() {
                    format!("{:.digits$e}", 0.0)
                } else {
                    let exponent = whole.len() as i64 - zeros as i64 - 1;
                    let mantissa = format!("{}.{}", &significant[..1], &significant[1..]);
                    let rounded = Number::Exact(mantissa).rounded(digits, 0);
                    // 9.99 may have become 10.0.
                    let carried = i64::from(rounded.whole.len() > 1);
                    let whole = &rounded.whole[..1];
                    let point = if digits > 0 { "." } else { "" };
                    format!("{sign}{whole}{point}{}e{}", rounded.fraction, exponent + carried)
                }
            }
        };
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i64 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        let blank = if mantissa.starts_with('-') { "" } else { " " };
        format!("{blank}{mantissa}e{sign}{:02}", exponent.abs())
    }
}

/// A column of numbers.
pub enum Numbers {
    Doubles(ArrayRef),
    /// As texts, which are exact.
    Exact(ArrayRef),
}

impl Numbers {
    pub fn new(array: &ArrayRef) -> DfResult<Numbers> {
        Ok(match array.data_type() {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                Numbers::Doubles(cast(array, &DataType::Float64)?)
            }
            _ => Numbers::Exact(cast(array, &DataType::Utf8)?),
        })
    }

    /// `None` is NULL.
    pub fn get(&self, row: usize) -> Option<Number> {
        match self {
            Numbers::Doubles(array) | Numbers::Exact(array) if array.is_null(row) => None,
            Numbers::Doubles(array) => {
                Some(Number::Double(array.as_primitive::<Float64Type>().value(row)))
            }
            Numbers::Exact(array) => {
                Some(Number::Exact(array.as_string::<i32>().value(row).to_string()))
            }
        }
    }
}
