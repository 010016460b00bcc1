//! Fitting columns into a terminal: which are shown, how wide, and what is cut.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Text narrower than this is not worth cutting.
const TEXT_WIDTH_MIN: usize = 8;

/// One column as the fitting sees it.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The widest of its values and its name.
    pub width: usize,
    /// A number with digits cut off would be another number.
    pub whole: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// The shown columns in order, with their widths; `None` stands for those left out.
    pub shown: Vec<Option<(usize, usize)>>,
    /// Whether a value wider than its column is cut; if not, it pushes its line out.
    pub cuts: bool,
}

/// Lays `columns` out in `available` columns of a terminal. Long texts are cut first; where that
/// is not enough, columns are left out from the middle, the first and last being the likeliest
/// to identify a row and to hold what was asked for.
pub fn layout(columns: &[Column], available: Option<usize>) -> Layout {
    let every = || (0..columns.len()).collect::<Vec<_>>();
    let Some(available) = available else {
        return Layout { cuts: false, ..with_cap(columns, &every(), None, usize::MAX) };
    };
    let floors = |shown: &[usize]| shown.iter().map(|c| floor(columns[*c])).sum::<usize>();
    let mut shown = every();
    let mut gap = None;
    while floors(&shown) + frame(shown.len(), gap.is_some()) > available && shown.len() > 1 {
        let at = gap.unwrap_or(shown.len().div_ceil(2)).min(shown.len() - 1);
        // Alternate sides of the gap, so that both ends keep about as many.
        let from_left = gap.is_some() && at > shown.len() - at;
        let at = if from_left { at - 1 } else { at };
        shown.remove(at);
        gap = Some(at);
    }
    let room = available.saturating_sub(frame(shown.len(), gap.is_some()));
    let total = |cap: usize| shown.iter().map(|c| capped(columns[*c], cap)).sum::<usize>();
    // The widest cap that fits, by bisection: `total` grows with it.
    let (mut low, mut high) = (0, columns.iter().map(|c| c.width).max().unwrap_or(0));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if total(middle) <= room { low = middle } else { high = middle - 1 }
    }
    with_cap(columns, &shown, gap, low)
}

fn with_cap(columns: &[Column], shown: &[usize], gap: Option<usize>, cap: usize) -> Layout {
    let mut out: Vec<_> = shown.iter().map(|c| Some((*c, capped(columns[*c], cap)))).collect();
    if let Some(gap) = gap {
        out.insert(gap, None);
    }
    Layout { shown: out, cuts: true }
}

/// The box: `│ ` before each column and ` │` at the end; the gap is a column one wide.
fn frame(columns: usize, gap: bool) -> usize {
    3 * columns + 1 + if gap { 4 } else { 0 }
}

fn floor(column: Column) -> usize {
    if column.whole { column.width } else { column.width.min(TEXT_WIDTH_MIN) }
}

fn capped(column: Column, cap: usize) -> usize {
    column.width.min(cap.max(floor(column)))
}

/// `text` in exactly `width` columns; what does not fit ends in `…`.
pub fn pad(text: &str, width: usize, right: bool) -> String {
    let natural = text.width();
    if natural > width {
        return cut(text, width);
    }
    let blanks = " ".repeat(width - natural);
    if right { blanks + text } else { text.to_string() + &blanks }
}

fn cut(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let w = c.width().unwrap_or(0);
        if used + w + 1 > width {
            break;
        }
        out.push(c);
        used += w;
    }
    out.push('…');
    // A wide character that did not fit leaves one column open.
    out + &" ".repeat(width.saturating_sub(used + 1))
}
