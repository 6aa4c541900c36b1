// Places the boxes of one level in layers, and draws the lines between them. Knows nothing of a page: numbers in,
// numbers out, so that a picture made without a browser has the same layout.
import { coordinates } from "./columns.js";

// Beside a tall box a small one stands near its top, not in its middle: its lines come from above.
const LOWEST = 48;
const GAP_X = 26, GAP_LANE = 14, GAP_Y = 34, MOST_DUMMIES = 20000, MOST_CROSSED = 1500;

// nodes: {w, h, ax: the anchor's distance from the left side, ins, outs: where ports are, or undefined; first, last;
// flexible: lines may enter anywhere; label: width of what is written beside its outgoing line}, in order of execution.
// edges: {from, out, to, into}; those that lead back are not given. Gives {w, h, x, y (of each node's corner), lines}.
export function layout(nodes, edges) {
  const forward = edges.filter((edge) => edge.from !== edge.to).concat(inSequence(nodes, edges));
  const ranks = rank(nodes, forward);
  const level = withLanes(nodes, forward, ranks);
  order(level);
  const x = coordinates(level, GAP_X, GAP_LANE);
  return place(level, x, forward);
}

// What nothing leads to and that leads nowhere stands below what happened before it, and so does what must.
function inSequence(nodes, edges) {
  const joined = new Set(edges.flatMap((edge) => [edge.from, edge.to])), found = [];
  for (let at = 1; at < nodes.length; at++) {
    const before = nodes[at - 1];
    if ((!joined.has(at) || nodes[at].inTurn) && !nodes[at].last && !nodes[at].first && !before.first) found.push({ from: at - 1, out: -1, to: at, into: 0, isUnseen: true });
  }
  return found;
}

function rank(nodes, edges) {
  const before = nodes.map(() => []), after = nodes.map(() => []);
  for (const edge of edges) { before[edge.to].push(edge.from); after[edge.from].push(edge.to); }
  const ranks = nodes.map(() => 0);
  const hasPorts = nodes.some((node) => node.first);
  nodes.forEach((node, at) => {
    if (node.first) return;
    let found = hasPorts ? 1 : 0;
    for (const source of before[at]) if (source < at) found = Math.max(found, ranks[source] + 1);
    ranks[at] = found;
  });
  for (let at = nodes.length - 1; at >= 0; at--) {
    if (nodes[at].first || nodes[at].last || !after[at].length) continue;
    const users = new Set(after[at]).size, sources = new Set(before[at]).size;
    const latest = Math.min(...after[at].map((to) => (nodes[to].last ? Infinity : ranks[to]))) - 1;
    if ((users > sources || !sources) && latest !== Infinity && latest > ranks[at]) ranks[at] = latest;
  }
  const bottom = Math.max(0, ...nodes.map((node, at) => (node.last ? 0 : ranks[at] + 1)));
  nodes.forEach((node, at) => { if (node.last) ranks[at] = bottom; });
  return ranks;
}

// Long lines get a place of their own in each layer they pass; one chain for all that a result goes to.
function withLanes(nodes, edges, ranks) {
  const count = Math.max(-1, ...ranks) + 1;
  /** @type {any[][]} */
  const layers = Array.from({ length: count }, () => []);
  const cells = nodes.map((node, at) => ({ node, at, rank: ranks[at], up: [], down: [], left: node.ax + 0, right: Math.max(node.w - node.ax, (node.label || 0) + 10) }));
  const chains = new Map();
  let dummies = 0;
  for (const edge of edges) {
    const span = ranks[edge.to] - ranks[edge.from];
    edge.isStub = span < 1 || dummies + span > MOST_DUMMIES;
    if (edge.isStub) continue;
    const key = edge.from + ":" + edge.out;
    if (!chains.has(key)) chains.set(key, []);
    const chain = chains.get(key);
    let last = cells[edge.from];
    for (let rank = ranks[edge.from] + 1; rank < ranks[edge.to]; rank++) {
      let lane = chain[rank];
      if (!lane) {
        lane = chain[rank] = { node: null, at: edge.from, rank, up: [], down: [], left: 3, right: 3 };
        cells.push(lane);
        join(last, lane);
        dummies++;
      }
      last = lane;
    }
    join(last, cells[edge.to]);
    edge.chain = chain.filter((lane) => lane && lane.rank < ranks[edge.to]);
  }
  for (const cell of cells) layers[cell.rank].push(cell);
  return { nodes, cells, layers, ranks };
}

function join(upper, lower) {
  if (!upper.down.includes(lower)) { upper.down.push(lower); lower.up.push(upper); }
}

// Fewest crossings: execution order first, lanes to the right; then by the middle of the neighbours, back and forth.
function order(level) {
  const { layers } = level;
  for (const layer of layers) layer.sort((a, b) => Number(!a.node) - Number(!b.node) || a.at - b.at);
  number(layers);
  const total = layers.reduce((sum, layer) => sum + layer.length, 0);
  const sweeps = total > 4000 ? 1 : total > 1000 ? 4 : 12;
  let best = layers.map((layer) => layer.slice()), fewest = crossings(layers);
  for (let sweep = 0; sweep < sweeps && fewest > 0; sweep++) {
    const isDown = sweep % 2 === 0;
    const inTurn = isDown ? layers.keys() : [...layers.keys()].reverse();
    for (const at of inTurn) sortByNeighbours(layers[at], isDown ? "up" : "down");
    if (total < MOST_CROSSED) transpose(layers);
    const now = crossings(layers);
    if (now < fewest) { fewest = now; best = layers.map((layer) => layer.slice()); }
  }
  best.forEach((layer, at) => { layers[at] = layer; });
  number(layers);
}

function number(layers) {
  for (const layer of layers) layer.forEach((cell, at) => { cell.place = at; });
}

function sortByNeighbours(layer, side) {
  for (const cell of layer) {
    const places = cell[side].map((other) => other.place);
    cell.wish = places.length ? places.reduce((a, b) => a + b) / places.length : cell.place;
  }
  layer.sort((a, b) => a.wish - b.wish || a.place - b.place);
  layer.forEach((cell, at) => { cell.place = at; });
}

function transpose(layers) {
  for (const layer of layers) {
    for (let at = 0; at + 1 < layer.length; at++) {
      const [a, b] = [layer[at], layer[at + 1]];
      const now = crossed(a, b, "up") + crossed(a, b, "down"), swapped = crossed(b, a, "up") + crossed(b, a, "down");
      if (swapped < now) { layer[at] = b; layer[at + 1] = a; b.place = at; a.place = at + 1; }
    }
  }
}

function crossed(a, b, side) {
  let found = 0;
  for (const one of a[side]) for (const other of b[side]) if (one.place > other.place) found++;
  return found;
}

// How often lines cross: pairs that stand the other way round above than below.
function crossings(layers) {
  let found = 0;
  for (const layer of layers) {
    const ends = [];
    for (const cell of layer) ends.push(...cell.down.map((other) => other.place).sort((a, b) => a - b));
    found += inversions(ends);
  }
  return found;
}

function inversions(numbers) {
  const size = Math.max(0, ...numbers) + 1, tree = new Array(size + 1).fill(0);
  let found = 0;
  numbers.forEach((number, seen) => {
    let smaller = 0;
    for (let at = number + 1; at > 0; at -= at & -at) smaller += tree[at];
    found += seen - smaller;
    for (let at = number + 1; at <= size; at += at & -at) tree[at]++;
  });
  return found;
}

// ---------------------------------------------------------------- places and lines

function place(level, x, edges) {
  const { nodes, cells, layers } = level;
  const heights = layers.map((layer) => Math.max(0, ...layer.map((cell) => (cell.node ? cell.node.h : 0))));
  const tops = [];
  let y = 0;
  layers.forEach((layer, at) => {
    tops.push(y);
    y += heights[at] + (at + 1 < layers.length ? gapBelow(layers, heights, at) : 0);
  });
  const left = Math.min(0, ...cells.map((cell, at) => x[at] - cell.left));
  const corner = nodes.map((node, at) => ({ x: x[at] - node.ax - left, y: tops[level.ranks[at]] + Math.min((heights[level.ranks[at]] - node.h) / 2, LOWEST) }));
  cells.forEach((cell, at) => { cell.x = x[at] - left; });
  const geometry = { nodes, corner, tops, heights, ranks: level.ranks, layers };
  const lines = edges.filter((edge) => !edge.isUnseen).map((edge) => route(edge, cells, geometry));
  const width = Math.max(0, ...cells.map((cell) => cell.x + cell.right));
  return { w: width, h: y, x: corner.map((at) => at.x), y: corner.map((at) => at.y), lines };
}

// Where many lines change sides they need room to do so.
function gapBelow(layers, heights, at) {
  let turns = 0;
  for (const cell of layers[at]) for (const other of cell.down) if (Math.abs(cell.place - other.place) > 0) turns++;
  const isPort = heights[at] === 0 || heights[at + 1] === 0;
  return Math.min((isPort ? 24 : GAP_Y) + turns * 1.5, 70);
}

function route(edge, cells, geometry) {
  const { nodes, corner, tops, heights, ranks } = geometry;
  const source = nodes[edge.from], target = nodes[edge.to], s = ranks[edge.from], t = ranks[edge.to];
  const fromX = corner[edge.from].x + (source.outs && source.outs[edge.out] !== undefined ? source.outs[edge.out] : source.ax);
  const fromY = corner[edge.from].y + source.h;
  const label = { x: fromX, y: fromY, turn: 0 };
  if (edge.isStub) return { d: `M${fromX},${fromY}v14`, label, isStub: true };
  const verticals = [[fromX, fromY, tops[s] + heights[s]]];
  for (const lane of edge.chain) verticals.push([lane.x, tops[lane.rank], tops[lane.rank] + heights[lane.rank]]);
  const end = entry(edge, verticals, geometry);
  const next = verticals.length > 1 ? verticals[1][0] : end.x;
  label.turn = Math.abs(next - fromX) < 0.5 ? 0 : Math.sign(next - fromX);
  let d = `M${r(fromX)},${r(fromY)}`, at = [fromX, fromY];
  for (const [x, top, bottom] of verticals.slice(1).concat(end.side ? [] : [[end.x, tops[t], end.y]])) {
    d += curve(at[0], at[1] < tops[s] + heights[s] ? tops[s] + heights[s] : at[1], x, top, at[1]);
    if (bottom > top + 0.5) d += `V${r(bottom)}`;
    at = [x, bottom];
  }
  if (end.side) {
    const corner = end.side * 10;
    d += `V${r(end.y - 10)}Q${r(at[0])},${r(end.y)} ${r(at[0] - corner)},${r(end.y)}H${r(end.x)}`;
  }
  return { d, label, end: { x: end.x, y: end.y, side: end.side || 0 } };
}

function curve(x0, y0, x1, y1, from) {
  const straight = from < y0 ? `V${r(y0)}` : "";
  if (Math.abs(x0 - x1) < 0.5) return straight + `V${r(y1)}`;
  const middle = (y0 + y1) / 2;
  return `${straight}C${r(x0)},${r(middle)} ${r(x1)},${r(middle)} ${r(x1)},${r(y1)}`;
}

// Where a line meets its box: where its column does, from the side when it comes past it, else in the middle above.
function entry(edge, verticals, geometry) {
  const { nodes, corner } = geometry;
  const target = nodes[edge.to], at = corner[edge.to], laneX = verticals[verticals.length - 1][0];
  if (target.ins && target.ins[edge.into] !== undefined) return { x: at.x + target.ins[edge.into], y: at.y };
  const middle = { x: at.x + target.ax, y: at.y };
  if (!target.flexible) return middle;
  const margin = target.w < 40 ? 9 : 12;
  if (laneX >= at.x + margin && laneX <= at.x + target.w - margin) return { x: laneX, y: at.y };
  if (edge.chain.length) {
    const side = laneX > at.x ? 1 : -1, edgeX = side > 0 ? at.x + target.w : at.x;
    if (Math.abs(laneX - edgeX) > 12 && isFree(edge.to, edgeX, laneX, geometry)) return { x: edgeX, y: at.y + target.h / 2, side };
  }
  return middle;
}

function isFree(node, from, to, geometry) {
  const low = Math.min(from, to) - 6, high = Math.max(from, to) + 6;
  return geometry.layers[geometry.ranks[node]].every((cell) => {
    if (cell.node && cell.at === node) return true;
    const left = cell.x - cell.left, right = cell.x + (cell.node ? cell.node.w - cell.node.ax : cell.right);
    return right < low || left > high || (!cell.node && (cell.x < low + 4 || cell.x > high - 4));
  });
}

export function r(number) {
  return Math.round(number * 10) / 10;
}
