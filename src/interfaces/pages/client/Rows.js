/**
 * The index of the first row that ends after `position`.
 * @param {Float64Array} offsets the start of each row, followed by the end of the last row
 * @param {number} position
 */
export const rowAt = (offsets, position) => {
  let low = 0
  let high = Math.max(0, offsets.length - 2)
  while (low < high) {
    const middle = (low + high) >> 1
    if ((offsets[middle + 1] ?? 0) > position) high = middle
    else low = middle + 1
  }
  return low
}
