// @ts-check
// What leads to a box and what it leads to, along the lines that are drawn: through the borders of open boxes, too.

/**
 * @param {import("./types").Model} model
 * @param {import("./types").Mark[]} marks
 * @param {number} item
 */
export function reach(model, marks, item) {
  /** @type {Map<number, number[]>} */
  const into = new Map();
  /** @type {Map<number, number[]>} */
  const from = new Map();
  marks.forEach((mark, at) => {
    if (mark.from === undefined || mark.to === undefined || mark.out === undefined || mark.c.includes("hit")) return;
    add(into, mark.to, at);
    add(from, mark.from, at);
  });
  const upEdges = new Set();
  const downEdges = new Set();
  const up = walk(item, into, (mark) => mark.from ?? -1, (mark) => mark.out ?? 0, (mark) => mark.into ?? 0, upEdges);
  const down = walk(item, from, (mark) => mark.to ?? -1, (mark) => mark.into ?? 0, (mark) => mark.out ?? 0, downEdges);
  return { up, down, upEdges, downEdges };

  /**
   * Walk along the lines. A line that ends at the border of a box goes on at the same place on the other side of it.
   * @param {number} start
   * @param {Map<number, number[]>} lines by the end that the walk comes from
   * @param {(mark: import("./types").Mark) => number} far the other end
   * @param {(mark: import("./types").Mark) => number} farPort which result or argument it is there
   * @param {(mark: import("./types").Mark) => number} nearPort
   * @param {Set<number>} edges
   */
  function walk(start, lines, far, farPort, nearPort, edges) {
    const seen = new Set();
    /** @type {{at: number, side: "outside" | "inside" | "both", port: number}[]} */
    const pending = [{ at: start, side: "outside", port: -1 }];
    while (pending.length) {
      const { at, side, port } = /** @type {typeof pending[0]} */ (pending.pop());
      for (const number of lines.get(at) || []) {
        const mark = marks[number];
        const end = far(mark);
        const isInside = end !== at && holds(at, end);
        if (edges.has(number) || (isInside ? side === "outside" : side === "inside")) continue;
        if (port >= 0 && nearPort(mark) !== port) continue;
        edges.add(number);
        if (end < 0) continue;
        seen.add(end);
        if (end !== at && holds(end, at)) pending.push({ at: end, side: "outside", port: farPort(mark) });
        else if (isOpen(end, lines)) pending.push({ at: end, side: "inside", port: farPort(mark) });
        else pending.push({ at: end, side: "outside", port: -1 });
      }
    }
    return seen;
  }

  /** Whether lines are drawn inside of an item. */
  function isOpen(/** @type {number} */ number, /** @type {Map<number, number[]>} */ lines) {
    return (lines.get(number) || []).some((at) => {
      const mark = marks[at];
      const other = mark.from === number ? mark.to : mark.from;
      return other !== undefined && other !== number && holds(number, other);
    });
  }

  function holds(/** @type {number} */ around, /** @type {number} */ inner) {
    let at = inner;
    while (at >= 0) {
      at = model.items[at].parent;
      if (at === around) return true;
    }
    return false;
  }
}

/** @param {Map<number, number[]>} map @param {number} key @param {number} at */
function add(map, key, at) {
  const there = map.get(key);
  if (there) there.push(at);
  else map.set(key, [at]);
}
