//! Which encodings compete for a column: those Vortex tries by itself, and four of ours.
//!
//! Vortex's compressor takes the encoding that makes a sample of a column smallest, and does the
//! same for the parts that encoding leaves. By itself it uses only what its *editions* promise to
//! read for ever. We also let it use `fastlanes.delta` and the second versions of bit-packing,
//! frames of reference and decimals, which are in none yet: a key that ascends with every order
//! takes a ninth of the room, and decimals of more than 18 digits are compressed at all. What keeps
//! such files readable is the database of each format version that our tests read.

use vortex::array::aggregate_fn::fns::uncompressed_size_in_bytes::{
    UncompressedSizeOpts, uncompressed_size_in_bytes,
};
use vortex::array::arrays::dict::DictArraySlotsExt;
use vortex::array::arrays::primitive::PrimitiveArrayExt;
use vortex::array::arrays::{DictArray, PrimitiveArray, VarBinViewArray};
use vortex::array::builders::dict::dict_encode;
use vortex::array::{ArrayId, ArrayRef, Canonical, Executable, ExecutionCtx, IntoArray, VTable};
use vortex::compressor::{BtrBlocksCompressor, BtrBlocksCompressorBuilder, Scheme};
use vortex::dtype::PType;
use vortex::encodings::pco::Pco;
use vortex::encodings::runend::RunEnd;
use vortex::encodings::runend::compress::runend_encode;
use vortex::encodings::zstd::{Zstd, ZstdArray};
use vortex::error::VortexResult;
use vortex::session::VortexSession;
use vortex_btrblocks::schemes::integer::{IntRLEScheme, RunEndScheme, SparseScheme};
use vortex_compressor::CascadingCompressor;
use vortex_compressor::builtins::{
    BinaryDictScheme, FloatDictScheme, IntDictScheme, StringDictScheme,
};
use vortex_compressor::scheme::{
    AncestorExclusion, ChildSelection, CompressionEstimate, CompressorContext, DeferredEstimate,
    DescendantExclusion, EstimateScore, EstimateVerdict, SchemeExt,
};
use vortex_compressor::stats::{ArrayAndStats, GenerateStatsOptions};

/// One for each share of distinct values among all.
pub(super) struct Compressors {
    few: BtrBlocksCompressor,
    some: BtrBlocksCompressor,
    most: BtrBlocksCompressor,
}

impl Compressors {
    pub fn new(session: &VortexSession) -> Self {
        let all = BtrBlocksCompressorBuilder::from_session(session)
            .disable_editions()
            // Ours does what both of these do.
            .exclude_schemes([RunEndScheme.id(), IntRLEScheme.id()])
            .with_new_scheme(&Runs)
            .with_new_scheme(&Uneven);
        let with_text = all.clone().with_new_scheme(&Text);
        // In a hash table Vortex counts how often each value comes, to decide on these: a good part
        // of the work, and nothing in it for values that come once.
        let counting = [
            IntDictScheme.id(),
            SparseScheme.id(),
            FloatDictScheme.id(),
            StringDictScheme.id(),
            BinaryDictScheme.id(),
        ];
        Compressors {
            few: all.exclude_schemes([StringDictScheme.id()]).with_new_scheme(&Dictionary).build(),
            some: with_text.clone().build(),
            most: with_text.exclude_schemes(counting).build(),
        }
    }

    /// For a chunk of a column with about so many distinct values.
    pub fn of(&self, rows: u64, distinct: u64) -> &BtrBlocksCompressor {
        match distinct {
            // A case for a dictionary, whose codes queries can use as they are.
            _ if distinct * 4 < rows => &self.few,
            // Vortex makes no dictionary of more than half; with room for an estimate's error.
            _ if distinct * 8 < rows * 5 => &self.some,
            _ => &self.most,
        }
    }
}

/// Whole numbers as runs of equal values. Vortex's own begins at four values in a run; the rows
/// of a parent are just about as many in most data, and two are enough to pay.
#[derive(Debug)]
struct Runs;

const RUN_ROWS_MIN: u32 = 2;
const RUNS_TRIAL_ROWS: usize = 16 * 1024;

impl Scheme for Runs {
    fn scheme_name(&self) -> &'static str {
        "thalweg.int.runs"
    }

    fn matches(&self, canonical: &Canonical) -> bool {
        canonical.dtype().is_int()
    }

    fn produced_encodings(&self) -> Vec<ArrayId> {
        vec![RunEnd.id()]
    }

    /// Values and ends.
    fn num_children(&self) -> usize {
        2
    }

    /// Ends ascend: none comes twice.
    fn descendant_exclusions(&self) -> Vec<DescendantExclusion> {
        let exclude = |excluded| DescendantExclusion { excluded, children: ChildSelection::One(1) };
        [IntDictScheme.id(), SparseScheme.id()].map(exclude).into()
    }

    fn ancestor_exclusions(&self) -> Vec<AncestorExclusion> {
        RunEndScheme.ancestor_exclusions()
    }

    fn expected_compression_ratio(
        &self,
        data: &ArrayAndStats,
        context: CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> CompressionEstimate {
        if data.integer_stats(execution).average_run_length() < RUN_ROWS_MIN {
            return CompressionEstimate::Verdict(EstimateVerdict::Skip);
        }
        if context.is_sample() || data.array_len() < RUNS_TRIAL_ROWS {
            return CompressionEstimate::Deferred(DeferredEstimate::Sample);
        }
        // Samples from many places do not tell how well the ends of runs, and values that ascend
        // from run to run, can be coded.
        CompressionEstimate::Deferred(DeferredEstimate::Callback(Box::new(
            |compressor, data, best, context, execution| {
                let part: PrimitiveArray = first_rows(data, RUNS_TRIAL_ROWS, execution)?;
                let after = Runs.encode(compressor, &part, &context, execution)?.nbytes().max(1);
                Ok(verdict(part.nbytes() as f64 / after as f64, best))
            },
        )))
    }

    fn compress(
        &self,
        compressor: &CascadingCompressor,
        data: &ArrayAndStats,
        context: CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        self.encode(compressor, &data.array_as_primitive().into_owned(), &context, execution)
    }
}

impl Runs {
    fn encode(
        &self,
        compressor: &CascadingCompressor,
        numbers: &PrimitiveArray,
        context: &CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        let (ends, values) = runend_encode(numbers.as_view(), execution);
        let values = values.execute::<PrimitiveArray>(execution)?.into_array();
        let values = compressor.compress_child(&values, context, self.id(), 0, execution)?;
        let ends =
            compressor.compress_child(&ends.into_array(), context, self.id(), 1, execution)?;
        RunEnd::try_new_offset_length(ends, values, 0, numbers.len(), execution)
            .map(IntoArray::into_array)
    }
}

fn first_rows<T: Executable>(
    data: &ArrayAndStats,
    rows: usize,
    execution: &mut ExecutionCtx,
) -> VortexResult<T> {
    data.array().slice(0..data.array_len().min(rows))?.execute::<T>(execution)
}

/// Text as codes of a dictionary. Vortex's own looks at samples, which are too short to see that a
/// few thousand values come again and again; this one knows how many there are.
#[derive(Debug)]
struct Dictionary;

impl Scheme for Dictionary {
    fn scheme_name(&self) -> &'static str {
        "thalweg.text.dictionary"
    }

    fn matches(&self, canonical: &Canonical) -> bool {
        canonical.dtype().is_utf8()
    }

    fn produced_encodings(&self) -> Vec<ArrayId> {
        StringDictScheme.produced_encodings()
    }

    fn stats_options(&self) -> GenerateStatsOptions {
        StringDictScheme.stats_options()
    }

    /// Values and codes.
    fn num_children(&self) -> usize {
        2
    }

    fn descendant_exclusions(&self) -> Vec<DescendantExclusion> {
        StringDictScheme.descendant_exclusions()
    }

    /// As if values were stored as they are, and codes in as few bits as each needs.
    fn expected_compression_ratio(
        &self,
        data: &ArrayAndStats,
        context: CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> CompressionEstimate {
        let statistics = data.varbinview_stats(execution);
        let rows = u64::from(statistics.value_count());
        let distinct = u64::from(statistics.estimated_distinct_count().unwrap_or(u32::MAX));
        if context.is_sample() || distinct * 2 > rows {
            return CompressionEstimate::Verdict(EstimateVerdict::Skip);
        }
        let exact = UncompressedSizeOpts::exact();
        let Ok(before) = uncompressed_size_in_bytes(data.array(), exact, execution) else {
            return CompressionEstimate::Verdict(EstimateVerdict::Skip);
        };
        let code_bits = u64::BITS - distinct.saturating_sub(1).leading_zeros();
        let codes = data.array_len() as f64 * f64::from(code_bits) / 8.0;
        let values = before as f64 * distinct as f64 / rows.max(1) as f64;
        CompressionEstimate::Verdict(EstimateVerdict::Ratio(before as f64 / (codes + values)))
    }

    fn compress(
        &self,
        compressor: &CascadingCompressor,
        data: &ArrayAndStats,
        context: CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        let dictionary = dict_encode(data.array(), execution)?;
        let codes = dictionary.codes().clone().execute::<PrimitiveArray>(execution)?;
        let codes = codes.narrow(execution)?.into_array();
        let codes = compressor.compress_child(&codes, &context, self.id(), 1, execution)?;
        let values = dictionary.values();
        let values = compressor.compress_child(values, &context, self.id(), 0, execution)?;
        DictArray::try_new(codes, values).map(IntoArray::into_array)
    }
}

/// Whole numbers by Pco, which codes frequent values in fewer bits; bytes, which are mostly the codes
/// of a dictionary and which Pco does not take, by Zstandard. Both are decoded more slowly than packed
/// bits, so they must be smaller by as much as [`PCO`] or [`BYTES`] say: seven values in three bits are
/// no case for them.
#[derive(Debug)]
struct Uneven;

const PCO_LEVEL: usize = 8;
/// Of trials, which most columns go through: less time, for 2 % more bytes.
const PCO_TRIAL_LEVEL: usize = 4;
const BYTES_LEVEL: i32 = 3;
/// Each can be decoded without the others.
const UNEVEN_PAGE_ROWS: usize = 16 * 1024;
/// Pco takes 3 to 4 ns for a value, where packed bits take less than a half: a scan of the page cache, or
/// of a fast disk, waits for it.
const PCO: Advantage = Advantage { share: 0.74, bits: 1.5 };
/// Zstandard takes about one.
const BYTES: Advantage = Advantage { share: 0.92, bits: 0.5 };
const UNEVEN_ROWS_MIN: usize = 1024;
/// What is compressed to learn how small it gets: from one place, as neighbours are often alike.
const UNEVEN_TRIAL_ROWS: usize = 8 * 1024;

/// What another encoding must offer.
struct Advantage {
    /// It may take this part of the bytes.
    share: f64,
    /// And must save so many bits of a value.
    bits: f64,
}

impl Scheme for Uneven {
    fn scheme_name(&self) -> &'static str {
        "thalweg.int.uneven"
    }

    fn matches(&self, canonical: &Canonical) -> bool {
        canonical.dtype().is_int()
    }

    fn produced_encodings(&self) -> Vec<ArrayId> {
        vec![Pco.id(), Zstd.id()]
    }

    fn expected_compression_ratio(
        &self,
        data: &ArrayAndStats,
        context: CompressorContext,
        _: &mut ExecutionCtx,
    ) -> CompressionEstimate {
        // Signed bytes are decimals of few digits, of which there is little to be had.
        let small = data.array_as_primitive().ptype() == PType::I8;
        if small || context.is_sample() || data.array_len() < UNEVEN_ROWS_MIN {
            return CompressionEstimate::Verdict(EstimateVerdict::Skip);
        }
        CompressionEstimate::Deferred(DeferredEstimate::Callback(Box::new(
            |_, data, best, _, execution| {
                let part: PrimitiveArray = first_rows(data, UNEVEN_TRIAL_ROWS, execution)?;
                let before = part.nbytes() as f64;
                let after = uneven(&part, PCO_TRIAL_LEVEL, execution)?.nbytes().max(1) as f64;
                let wanted = if part.ptype() == PType::U8 { BYTES } else { PCO };
                let saved_min = part.len() as f64 / 8.0 * wanted.bits;
                Ok(verdict(before / (after + saved_min).max(after / wanted.share), best))
            },
        )))
    }

    fn compress(
        &self,
        _: &CascadingCompressor,
        data: &ArrayAndStats,
        _: CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        uneven(&data.array_as_primitive().into_owned(), PCO_LEVEL, execution)
    }
}

fn uneven(
    numbers: &PrimitiveArray,
    pco_level: usize,
    execution: &mut ExecutionCtx,
) -> VortexResult<ArrayRef> {
    let page = UNEVEN_PAGE_ROWS;
    Ok(match numbers.ptype() {
        PType::U8 => Zstd::from_primitive(numbers, BYTES_LEVEL, page, execution)?.into_array(),
        _ => Pco::from_primitive(numbers.as_view(), pco_level, page, execution)?.into_array(),
    })
}

/// For a compressor of that ratio, if the best of the others has that one.
fn verdict(ratio: f64, best: Option<EstimateScore>) -> EstimateVerdict {
    match best.and_then(EstimateScore::finite_ratio) {
        Some(best) if ratio <= best => EstimateVerdict::Skip,
        _ => EstimateVerdict::Ratio(ratio),
    }
}

/// Text by Zstandard, in frames. It is decoded a few times more slowly than what a symbol table
/// makes of the same text, so it must be smaller by as much as [`TEXT_ADVANTAGE`].
#[derive(Debug)]
struct Text;

const TEXT_LEVEL: i32 = 3;
/// A quarter of a chunk: 1 % larger than the whole chunk in one frame, and a few rows of it need
/// only one.
const TEXT_FRAME_ROWS: usize = 16 * 1024;
const TEXT_ADVANTAGE: f64 = 0.87;
/// What is compressed to learn how small it gets. From one place, unlike Vortex's own samples:
/// what makes Zstandard good is text that came shortly before.
const TEXT_TRIAL_ROWS: usize = 8 * 1024;
const TEXT_BYTES_MIN: usize = 16 * 1024;

impl Scheme for Text {
    fn scheme_name(&self) -> &'static str {
        "thalweg.text.zstd"
    }

    fn matches(&self, canonical: &Canonical) -> bool {
        canonical.dtype().is_utf8()
    }

    fn produced_encodings(&self) -> Vec<ArrayId> {
        vec![Zstd.id()]
    }

    fn expected_compression_ratio(
        &self,
        _: &ArrayAndStats,
        context: CompressorContext,
        _: &mut ExecutionCtx,
    ) -> CompressionEstimate {
        if context.is_sample() {
            return CompressionEstimate::Verdict(EstimateVerdict::Skip);
        }
        CompressionEstimate::Deferred(DeferredEstimate::Callback(Box::new(
            |_, data, best, _, execution| trial(data, best, execution),
        )))
    }

    fn compress(
        &self,
        _: &CascadingCompressor,
        data: &ArrayAndStats,
        _: CompressorContext,
        execution: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        zstd(data.array_as_varbinview().into_owned(), execution).map(IntoArray::into_array)
    }
}

fn trial(
    data: &ArrayAndStats,
    best: Option<EstimateScore>,
    execution: &mut ExecutionCtx,
) -> VortexResult<EstimateVerdict> {
    let part: VarBinViewArray = first_rows(data, TEXT_TRIAL_ROWS, execution)?;
    let plain = part.clone().into_array();
    let before = uncompressed_size_in_bytes(&plain, UncompressedSizeOpts::exact(), execution)?;
    if before < TEXT_BYTES_MIN {
        return Ok(EstimateVerdict::Skip);
    }
    let after = zstd(part, execution)?.into_array().nbytes().max(1);
    Ok(verdict(before as f64 / after as f64 * TEXT_ADVANTAGE, best))
}

fn zstd(text: VarBinViewArray, execution: &mut ExecutionCtx) -> VortexResult<ZstdArray> {
    let text = text.compact_buffers(execution)?;
    Zstd::from_var_bin_view_without_dict(&text, TEXT_LEVEL, TEXT_FRAME_ROWS, execution)
}
