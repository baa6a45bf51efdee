//! Sizes of cells: each so large that a slab holds one cell fewer of the next, or a 32nd apart where cells are small.

/// A slab, and what it begins at a multiple of.
pub(crate) const SLAB_BYTES: usize = 128 << 10;
/// What a slab keeps for itself, at its start.
pub(super) const HEADER_BYTES: usize = 64;
/// Smallest cell.
const SMALLEST: usize = 64;
/// A slab holds at least so many cells; for what is larger, too much would be left over at its end.
const CELLS_MIN: usize = 7;
const STEP_PART: usize = 32;
const ALIGNMENT: usize = 8;
/// A line of the processor's caches.
pub(crate) const LINE_BYTES: usize = 64;
/// From here on cells are whole lines: the head of one, and the first bytes behind it, are one line.
const LINES_FROM: usize = 1024;

/// Number of sizes.
pub(super) const CLASSES: usize = {
    let (mut size, mut count) = (SMALLEST, 1);
    while cells_of(size) > CELLS_MIN {
        size = after(size);
        count += 1;
    }
    count
};

/// Bytes of the cells of every class, ascending.
static CELL_BYTES: [usize; CLASSES] = {
    let mut sizes = [SMALLEST; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        sizes[class] = after(sizes[class - 1]);
        class += 1;
    }
    sizes
};

static SHARE_BYTES: [usize; CLASSES] = {
    let mut shares = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        shares[class] = SLAB_BYTES.div_ceil(cells_of(CELL_BYTES[class]));
        class += 1;
    }
    shares
};

/// Cells of so many bytes in a slab.
const fn cells_of(bytes: usize) -> usize {
    (SLAB_BYTES - HEADER_BYTES) / bytes
}

/// The size after `size`, and of those of which a slab holds as many the largest.
const fn after(size: usize) -> usize {
    let step = size / STEP_PART;
    let step = match step {
        step if size >= LINES_FROM && step < LINE_BYTES => LINE_BYTES,
        step if step < ALIGNMENT => ALIGNMENT,
        step => step,
    };
    let cells = match cells_of(size + step) {
        cells if cells < CELLS_MIN => CELLS_MIN,
        cells => cells,
    };
    let most = (SLAB_BYTES - HEADER_BYTES) / cells;
    let alignment = if most < LINES_FROM + LINE_BYTES {
        ALIGNMENT
    } else {
        LINE_BYTES
    };
    most / alignment * alignment
}

/// The class with the smallest cells that hold `bytes`; `None`: none does.
pub(super) fn class_of(bytes: usize) -> Option<usize> {
    let class = CELL_BYTES.partition_point(|&cell| cell < bytes);
    (class < CLASSES).then_some(class)
}

/// Bytes of a cell of a class.
pub(super) fn cell_bytes(class: usize) -> usize {
    CELL_BYTES[class]
}

/// What a cell of a class takes of its slab, with its part of what is no cell.
pub(super) fn share_bytes(class: usize) -> usize {
    SHARE_BYTES[class]
}

/// Cells of a slab of a class.
pub(super) fn cells(class: usize) -> u32 {
    u32::try_from(cells_of(CELL_BYTES[class])).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_fits_and_little_is_left_over() {
        let largest = cell_bytes(CLASSES - 1);
        assert_eq!(cells(CLASSES - 1) as usize, CELLS_MIN);
        assert!(largest > 16 << 10 && class_of(largest + 1).is_none());
        for bytes in 1..=largest {
            let class = class_of(bytes).unwrap();
            let cell = cell_bytes(class);
            assert!(cell >= bytes && cell.is_multiple_of(ALIGNMENT));
            assert!(class == 0 || cell_bytes(class - 1) < bytes);
            let whole = cells(class) as usize * cell;
            assert!(whole <= SLAB_BYTES - HEADER_BYTES);
            // Of a slab, what is neither header nor cells; of a cell, what nobody asked for.
            assert!(SLAB_BYTES - whole < HEADER_BYTES + cell + CELLS_MIN * LINE_BYTES);
            let most = SMALLEST.max(bytes + ALIGNMENT + bytes / 16);
            assert!(cell <= most || bytes > 4096, "{cell} for {bytes}");
            assert!(bytes < 1100 || cell.is_multiple_of(LINE_BYTES));
        }
    }
}
