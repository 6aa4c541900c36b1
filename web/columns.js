// Columns: the x of every box and lane, after Brandes and Köpf: four layouts, each as straight as it can be, and for
// each cell the middle of the four. Boxes reach to the left and right of an anchor, the column that lines run in.

export function coordinates(level, gap, gapLane) {
  const { cells, layers } = level;
  cells.forEach((cell, at) => { cell.id = at; });
  const conflicts = crossingLanes(layers);
  const four = [];
  for (const isUp of [true, false]) {
    for (const isLeft of [true, false]) {
      const rows = (isUp ? layers : layers.slice().reverse()).map((layer) => (isLeft ? layer : layer.slice().reverse()));
      const blocks = align(cells, rows, isUp ? "up" : "down", isLeft ? 1 : -1, conflicts);
      const x = compact(cells, rows, blocks, isLeft, gap, gapLane);
      four.push(isLeft ? x : x.map((each) => -each));
    }
  }
  return middle(four, cells);
}

// Lines that cross a lane between two layers may not be straight: the lane is.
function crossingLanes(layers) {
  const marked = new Set();
  for (let at = 0; at + 1 < layers.length; at++) {
    const lanes = [], others = [];
    for (const cell of layers[at]) {
      for (const below of cell.down) (cell.node || below.node ? others : lanes).push([cell, below]);
    }
    if (lanes.length * others.length > 250000) continue;
    for (const [a, b] of others) {
      for (const [c, d] of lanes) {
        if ((a.place - c.place) * (b.place - d.place) < 0) { marked.add(a.id + ">" + b.id); break; }
      }
    }
  }
  return marked;
}

// A step looks to steps, not to lanes; a lane keeps away from steps that have a step to look to.
function neighbours(cell, side) {
  const all = cell[side];
  if (cell.node) {
    const steps = all.filter((other) => other.node);
    return steps.length ? steps : all;
  }
  const back = side === "up" ? "down" : "up";
  return all.filter((other) => !other.node || !other[back].some((each) => each.node));
}

function align(cells, rows, side, direction, conflicts) {
  const root = cells.map((_, at) => at), next = cells.map((_, at) => at);
  for (const row of rows) {
    let reached = -Infinity;
    for (const cell of row) {
      const near = neighbours(cell, side).slice().sort((a, b) => (a.place - b.place) * direction);
      if (!near.length) continue;
      const low = Math.floor((near.length - 1) / 2), high = Math.ceil((near.length - 1) / 2);
      for (let at = low; at <= high && next[cell.id] === cell.id; at++) {
        const other = near[at], key = side === "up" ? other.id + ">" + cell.id : cell.id + ">" + other.id;
        if (conflicts.has(key) || other.place * direction <= reached) continue;
        next[other.id] = cell.id;
        root[cell.id] = root[other.id];
        next[cell.id] = root[cell.id];
        reached = other.place * direction;
      }
    }
  }
  return root;
}

function compact(cells, rows, root, isLeft, gap, gapLane) {
  const after = new Map(), before = new Map(), waits = new Map();
  for (const row of rows) {
    for (let at = 1; at < row.length; at++) {
      const a = row[at - 1], b = row[at];
      const space = (a.node && b.node ? gap : gapLane) + (isLeft ? a.right + b.left : a.left + b.right);
      const [u, v] = [root[a.id], root[b.id]];
      if (u === v) continue;
      put(after, u, v, space);
      put(before, v, u, space);
    }
  }
  const roots = cells.map((_, at) => at).filter((at) => root[at] === at);
  for (const at of roots) waits.set(at, before.has(at) ? before.get(at).size : 0);
  const inOrder = roots.filter((at) => !waits.get(at)), x = new Array(cells.length).fill(0);
  for (let turn = 0; turn < inOrder.length; turn++) {
    for (const [other] of after.get(inOrder[turn]) || []) {
      waits.set(other, waits.get(other) - 1);
      if (!waits.get(other)) inOrder.push(other);
    }
  }
  for (const at of inOrder) x[at] = Math.max(0, ...[...(before.get(at) || [])].map(([other, space]) => x[other] + space));
  for (const at of inOrder.slice().reverse()) {
    const right = Math.min(Infinity, ...[...(after.get(at) || [])].map(([other, space]) => x[other] - space));
    if (right !== Infinity) x[at] = Math.max(x[at], right);
  }
  return cells.map((_, at) => x[root[at]]);
}

function put(map, from, to, space) {
  if (!map.has(from)) map.set(from, new Map());
  const there = map.get(from);
  there.set(to, Math.max(there.get(to) || 0, space));
}

// The four are laid over the narrowest, then each cell takes the middle: what keeps apart in all keeps apart in it.
function middle(four, cells) {
  if (!cells.length) return [];
  const ends = four.map((x) => {
    let low = Infinity, high = -Infinity;
    cells.forEach((cell, at) => { low = Math.min(low, x[at] - cell.left); high = Math.max(high, x[at] + cell.right); });
    return [low, high];
  });
  const narrow = ends.reduce((best, each, at) => (each[1] - each[0] < ends[best][1] - ends[best][0] ? at : best), 0);
  const shifted = four.map((x, at) => {
    const shift = at % 2 === 0 ? ends[narrow][0] - ends[at][0] : ends[narrow][1] - ends[at][1];
    return x.map((each) => each + shift);
  });
  return cells.map((_, at) => {
    const sorted = shifted.map((x) => x[at]).sort((a, b) => a - b);
    return (sorted[1] + sorted[2]) / 2;
  });
}
