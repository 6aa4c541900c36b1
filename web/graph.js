// The data flow as a scene: boxes, lines and words with their places, for the page and for pictures alike.
import { layout, r } from "./layout.js";
import { width } from "./letters.js";

const PAD = 18, HEAD = 34, RAIL = 12, MOST_PORTS = 8;
const LONGEST_TITLE = 40, LONGEST_DETAIL = 38, LONGEST_WORD = 30;
// What is not finite, behind a shape or a name: `12 NaN, 4 −Inf`.
const ALARM = / ?[\d,]+ (NaN|[+−]Inf).*$/;

// What is drawn: a list of {t: rect | path | circle | text …}, each with a class, and with the item it belongs to.
export function scene(model, view) {
  const top = group(model, null, view);
  const marks = [];
  draw(top, 0, 0, marks, 0);
  return { w: top.w, h: top.h, marks, boxes: top.boxes };
}

// ---------------------------------------------------------------- sizes

function group(model, item, view) {
  const level = model.levels.get(item ? item.number : -1);
  let children = item ? item.children : model.top;
  if (!item && view.shows) children = children.filter(view.shows);
  const parts = [], placeOf = new Map();
  if (item) portNames(level.ins).forEach((name, at) => parts.push({ kind: "in", name, port: at, w: 0, h: 0, ax: 0, first: true, label: name ? Math.min(width(name, 11, true), 120) : 0 }));
  const isOpen = (child) => view.open.has(child.number) && child.children.length > 0;
  const carried = item && item.hasRounds ? carriedIn(level.edges, (number) => isOpen(item.children[number])) : [];
  for (const { key, name } of carried) { placeOf.set("i" + key, parts.length); parts.push({ kind: "carriedIn", name, w: 0, h: 0, ax: 0, first: true, label: Math.min(width("↻ " + name, 11, true), 130) }); }
  const used = new Map();
  level.edges.forEach((edge) => { if (edge.from < -1 && edge.to >= 0) used.set(edge.from, Math.min(used.has(edge.from) ? used.get(edge.from) : Infinity, edge.to)); });
  const outsideBefore = (number) => level.outside.forEach((each, at) => {
    if (used.get(-2 - at) !== number || placeOf.has("o" + at)) return;
    placeOf.set("o" + at, parts.length);
    parts.push(outsideBox(each, item));
  });
  const all = item ? item.children : model.top;
  all.forEach((child, number) => {
    if (!children.includes(child)) return;
    outsideBefore(number);
    placeOf.set(number, parts.length);
    parts.push(isOpen(child) ? group(model, child, view) : box(child, view));
  });
  const lastAt = parts.length;
  if (item) portNames(level.outs).forEach((name, at) => parts.push({ kind: "out", name, port: at, w: 0, h: 0, ax: 0, last: true }));
  for (const { key } of carried) { placeOf.set("c" + key, parts.length); parts.push({ kind: "carriedOut", w: 0, h: 0, ax: 0, last: true }); }
  const edges = [], backs = [], drawnOnce = new Set();
  for (const edge of level.edges) {
    if (edge.isBack) { back(edge, carried, placeOf, parts, edges, backs, drawnOnce); continue; }
    const from = edge.from >= 0 ? placeOf.get(edge.from) : edge.from === -1 ? Math.min(edge.out, MOST_PORTS) : placeOf.get("o" + (-2 - edge.from));
    const to = edge.to >= 0 ? placeOf.get(edge.to) : lastAt + Math.min(edge.into, MOST_PORTS);
    if (from === undefined || to === undefined || from === to || !parts[from] || !parts[to] || (!item && (edge.from === -1 || edge.to === -1))) continue;
    // Several values between the same two closed boxes are one line, and so are those that share a port.
    const out = Math.min(edge.out, MOST_PORTS), into = Math.min(edge.into, MOST_PORTS);
    const key = `${from}:${parts[from].outs ? out : ""}>${to}:${parts[to].ins ? into : ""}`;
    if (drawnOnce.has(key)) continue;
    drawnOnce.add(key);
    edges.push({ from, out, to, into, shape: edge.shape, name: edge.name, isBad: edge.isBad });
  }
  for (const edge of edges) {
    const part = parts[edge.from], word = cut(edge.name || edge.shape, LONGEST_WORD);
    if (word && part.kind === "box") part.label = Math.max(part.label || 0, width(word, 11, true));
  }
  for (const { from, to } of backs) if (from === to) parts[from].label = Math.max(parts[from].label || 0, parts[from].w - parts[from].ax + 12);
  const found = layout(parts, edges);
  return framed(model, item, parts, edges, found, backs);
}

// Values that one round hands to the next: each goes out below and comes in again above. What a closed box hands to
// itself goes around that box, and all that it hands to others goes one way.
function carriedIn(edges, isOpen) {
  const found = new Map();
  for (const edge of edges) {
    if (!edge.isBack || (edge.from === edge.to && !isOpen(edge.from))) continue;
    const key = isOpen(edge.from) ? edge.from + ":" + edge.out : String(edge.from);
    if (!found.has(key) && found.size === MOST_PORTS) continue;
    if (!found.has(key)) found.set(key, { key, name: edge.name, edges: new Set() });
    found.get(key).edges.add(edge);
  }
  return [...found.values()];
}

function back(edge, carried, placeOf, parts, edges, backs, drawnOnce) {
  const way = carried.find((each) => each.edges.has(edge)), from = placeOf.get(edge.from), to = placeOf.get(edge.to), into = way && placeOf.get("i" + way.key);
  if (from === undefined || to === undefined) return;
  const once = (key, action) => { if (!drawnOnce.has(key)) { drawnOnce.add(key); action(); } };
  const ends = { isCarried: true, of: parts[from].item.number, takenBy: parts[to].item.number, shape: "", name: "" };
  if (into === undefined) once(`b${from}>${to}`, () => backs.push({ from, to, ...ends }));
  else {
    once("c" + way.key, () => edges.push({ from, out: edge.out, to: placeOf.get("c" + way.key), into: 0, ...ends }));
    once(`c${into}>${to}:${parts[to].ins ? edge.into : ""}`, () => edges.push({ from: into, out: 0, to, into: edge.into, ...ends }));
  }
}

// Of very many ports the first have a place of their own, the others share one.
function portNames(names) {
  return names.length > MOST_PORTS + 1 ? [...names.slice(0, MOST_PORTS), `+${names.length - MOST_PORTS} more`] : names;
}

function framed(model, item, parts, edges, found, backs) {
  const boxes = parts.reduce((sum, part) => sum + (part.boxes || (part.item ? 1 : 0)), item ? 1 : 0);
  if (!item) return { kind: "top", parts, edges, backs, found, w: found.w, h: found.h, dx: 0, dy: 0, boxes };
  const title = titleWidth(item) + 60, isCarrying = parts.some((part) => part.kind === "carriedOut"), w = Math.max(found.w + 2 * PAD, title), dx = (w - found.w) / 2, dy = HEAD;
  const h = found.h + HEAD + (isCarrying ? RAIL : parts.some((part) => part.kind === "out") ? 0 : PAD);
  const ports = (kind) => parts.map((part, at) => (part.kind === kind ? found.x[at] + dx : null)).filter((x) => x !== null);
  const ins = ports("in"), outs = ports("out");
  return { kind: "group", item, parts, edges, backs, found, w, h, dx, dy, ax: ins.length ? ins[0] : outs.length ? outs[0] : w / 2, ins, outs, boxes, state: stateOf(model, item) };
}

function titleWidth(item) {
  const words = [[titleOf(item), 13, true], [detailOf(item), 12], [item.often, 13, true], [onlyOf(item), 12]];
  return words.reduce((sum, [word, size, isBold]) => sum + (word ? width(word, size, false, isBold) + 8 : 0), 30);
}

// What is written on a box is cut: a class may have a name of ten thousand letters. Details have all of it.
function titleOf(item) {
  return cut(item.title || "repeat", item.hasRounds ? 60 : LONGEST_TITLE);
}

function detailOf(item) {
  const detail = item.kind === "repeat" && item.children.length ? "" : item.detail;
  return cut([item.where, detail].filter(Boolean).join("  "), LONGEST_DETAIL);
}

function onlyOf(item) {
  return cut(item.only, LONGEST_DETAIL);
}

function stateOf(model, item) {
  return model.failing.has(item.number) ? "failed" : "";
}

function box(item, view) {
  const part = { kind: "box", item, flexible: true, inTurn: item.kind === "step", boxes: 1, state: view.model.failing.has(item.number) ? "failed" : "" };
  const { often } = item;
  if (item.kind === "sign" && !often && !item.only) return { ...part, shape: "sign", w: 26, h: 26, ax: 13 };
  if (item.kind === "function" || item.kind === "view" || item.kind === "sign" || item.kind === "mark") {
    const name = cut(item.title, 34), variable = [cut(item.variable, 22), onlyOf(item)].filter(Boolean).join("  ");
    const w = width(name, 12, true) + (variable ? width(variable, 12, true) + 7 : 0) + (often ? width(often, 12) + 8 : 0) + 24 + (item.children.length ? 16 : 0);
    return { ...part, shape: "pill", name, variable, often, w, h: 26, ax: w / 2 };
  }
  const name = titleOf(item), detail = [cut([item.where, item.detail].filter(Boolean).join("  "), LONGEST_DETAIL), onlyOf(item)].filter(Boolean).join("  ");
  const first = width(name, 13, false, true) + (often ? width(often, 13, false, true) + 16 : 0), second = width(detail, 12);
  const w = Math.max(first, second) + 28 + (item.children.length ? 18 : 0);
  return { ...part, shape: "card", name, detail, often, w, h: detail ? 44 : 30, ax: w / 2 };
}

function outsideBox(outside, around) {
  const name = cut(outside.word, 30), w = width(name, 12, true) + 22;
  return { kind: "outside", name, isUnknown: outside.isUnknown, shapeWord: outside.shape, w, h: 24, ax: w / 2, flexible: true, label: outside.shape ? width(outside.shape, 11, true) : 0, around };
}

export function cut(text, most) {
  return [...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text;
}

// ---------------------------------------------------------------- marks

function draw(part, x, y, marks, depth) {
  const { parts, edges, found, dx, dy } = part, left = x + dx, top = y + dy;
  if (depth) frame(part, x, y, marks, depth % 2 ? "odd" : "even");
  edges.forEach((edge, at) => line(edge, found.lines[at], parts, left, top, marks, part.item));
  words(edges, found.lines, parts, left, top, marks);
  parts.forEach((child, at) => {
    const cx = left + found.x[at], cy = top + found.y[at];
    if (child.kind === "group") draw(child, cx, cy, marks, depth + 1);
    else if (child.kind === "box") card(child, cx, cy, marks);
    else if (child.kind === "outside") outside(child, cx, cy, marks);
    else if (child.kind === "in" || child.kind === "out") port(child, cx, cy, part, x, y, marks);
    else if (child.kind === "carriedIn") marks.push({ t: "text", x: cx + 6, y: cy + 11, s: cut("↻ " + child.name, 20), c: "port" });
  });
  rail(part, x, y, marks);
  for (const edge of part.backs) marks.push({ t: "path", d: leadingBack(edge, part, left, top), c: "edge carried", from: edge.of, to: edge.takenBy, arrow: true });
}

// From where a round hands something on, along the right side, to where the next one takes it.
function rail(part, x, y, marks) {
  const { parts, found, dx, dy } = part, at = (kind) => parts.map((child, number) => (child.kind === kind ? x + dx + found.x[number] : null)).filter((each) => each !== null);
  const outs = at("carriedOut"), ins = at("carriedIn");
  if (!outs.length) return;
  const right = x + part.w - 8, top = y + dy - 4, bottom = y + dy + found.h, first = Math.min(...outs), last = Math.min(...ins);
  marks.push({ t: "path", d: `M${r(first)},${r(bottom)}H${r(right - 8)}Q${r(right)},${r(bottom)} ${r(right)},${r(bottom - 8)}V${r(top + 8)}Q${r(right)},${r(top)} ${r(right - 8)},${r(top)}H${r(last)}`, c: "edge carried", from: part.item.number, to: part.item.number });
  for (const each of ins) marks.push({ t: "path", d: `M${r(each)},${r(top)}V${r(y + dy)}`, c: "edge carried", from: part.item.number, to: part.item.number });
}

// A box that takes what it gave the time before has a line around its right side.
function leadingBack({ from, to }, { parts, found }, left, top) {
  const source = parts[from], target = parts[to], x0 = left + found.x[from], y0 = top + found.y[from], x1 = left + found.x[to], y1 = top + found.y[to];
  if (from !== to) return `M${r(x0 + source.ax)},${r(y0 + source.h)}C${r(x0 + source.w + 40)},${r(y0 + source.h + 30)} ${r(x1 + target.w + 40)},${r(y1 - 30)} ${r(x1 + target.ax)},${r(y1)}`;
  const right = x0 + source.w + (source.item.most > 1 ? 5 : 0), low = y0 + source.h - 6, high = y0 + 7, middle = Math.min(10, (low - high) / 2);
  return `M${r(right)},${r(low)}Q${r(right + 10)},${r(low)} ${r(right + 10)},${r(low - middle)}V${r(high + middle)}Q${r(right + 10)},${r(high)} ${r(right)},${r(high)}`;
}

function frame(part, x, y, marks, parity) {
  const { item, w, h, state } = part, number = item.number, own = marks.length;
  if (item.most > 1) for (const back of [6, 3]) marks.push({ t: "rect", x: x + back, y: y + back, w, h, r: 10, c: "group back" });
  marks.push({ t: "rect", x, y, w, h, r: 10, c: `group ${parity} ${state}`, item: number });
  marks.push({ t: "rect", x: x + 4, y: y + 4, w: Math.min(w - 8, titleWidth(item) + 16), h: 24, r: 6, c: "head", item: number, toggle: number });
  marks.push({ t: "path", d: `M${r(x + 13)},${r(y + 14)}l4.5,4.5l4.5,-4.5`, c: "chevron" });
  const { often } = item, name = titleOf(item), detail = detailOf(item), only = onlyOf(item);
  marks.push({ t: "text", x: x + 30, y: y + 20.5, s: name, c: "title " + state });
  let at = x + 30 + width(name, 13, false, true) + 8;
  if (detail) { marks.push({ t: "text", x: at, y: y + 20.5, s: detail, c: "detail" }); at += width(detail, 12) + 8; }
  if (often) { marks.push({ t: "text", x: at, y: y + 20.5, s: often, c: "often" }); at += width(often, 13, false, true) + 8; }
  if (only) marks.push({ t: "text", x: at, y: y + 20.5, s: only, c: "detail" });
  for (let each = own; each < marks.length; each++) marks[each].of = number;
}

function card(part, x, y, marks) {
  const { item, w, h, shape, name, detail, often, variable, state } = part, number = item.number, middle = x + w / 2;
  const own = marks.length, classes = `box ${shape} ${item.kind} ${state}`;
  if (shape === "sign") {
    marks.push({ t: "circle", x: middle, y: y + h / 2, r: 12.5, c: classes, item: number });
    marks.push({ t: "text", x: middle, y: y + h / 2 + 4.5, s: name || item.title, c: "sign", anchor: "middle", of: number });
    return;
  }
  if (item.most > 1) for (const back of [5, 2.5]) marks.push({ t: "rect", x: x + back, y: y + back, w, h, r: shape === "pill" ? 13 : 7, c: "box back" });
  marks.push({ t: "rect", x, y, w, h, r: shape === "pill" ? 13 : 7, c: classes, item: number });
  if (shape === "pill") {
    let at = x + 12;
    marks.push({ t: "text", x: at, y: y + 17, s: name, c: "name " + item.kind + " " + state });
    at += width(name, 12, true) + 7;
    if (variable) { marks.push({ t: "text", x: at, y: y + 17, s: variable, c: "variable" }); at += width(variable, 12, true) + 8; }
    if (often) marks.push({ t: "text", x: at, y: y + 17, s: often, c: "often" });
  } else {
    if (item.hue) marks.push({ t: "rect", x: x + 5, y: y + 8, w: 3, h: h - 16, r: 1.5, c: "hue " + item.hue });
    marks.push({ t: "text", x: x + 15, y: y + (detail ? 18.5 : 19.5), s: name, c: "title " + state });
    if (often) marks.push({ t: "text", x: x + 15 + width(name, 13, false, true) + 10, y: y + (detail ? 18.5 : 19.5), s: often, c: "often" });
    if (detail) marks.push({ t: "text", x: x + 15, y: y + 34.5, s: detail, c: "detail" });
  }
  if (item.children.length) {
    marks.push({ t: "path", d: `M${r(x + w - 17)},${r(y + h / 2 - 5)}l4.5,5l-4.5,5`, c: "chevron" });
    marks.push({ t: "rect", x: x + w - 26, y, w: 26, h, r: 7, c: "head", item: number, toggle: number });
  }
  if (state && !item.children.length) marks.push({ t: "text", x: x + w + 8, y: y + h / 2 + 5, s: "✗", c: "cross" });
  for (let at = own; at < marks.length; at++) marks[at].of = number;
}

function outside(part, x, y, marks) {
  marks.push({ t: "rect", x, y, w: part.w, h: part.h, r: 12, c: "outside" + (part.isUnknown ? " unknown" : "") });
  marks.push({ t: "text", x: x + part.w / 2, y: y + 16, s: part.name, c: "name view", anchor: "middle" });
}

function port(child, cx, cy, part, x, y, marks) {
  if (child.kind === "in") {
    const isUnderTitle = cx < x + 24 + titleWidth(part.item) && cx > x + 6;
    marks.push({ t: "path", d: `M${r(cx)},${r(isUnderTitle ? y + HEAD - 6 : y)}V${r(cy)}`, c: "edge", from: part.item.number, to: part.item.number });
    if (child.name) marks.push({ t: "text", x: cx + 7, y: cy + 4, s: cut(child.name, 18), c: "port" });
    marks.push({ t: "circle", x: cx, y, r: 3, c: "dot" });
  } else {
    if (cy < y + part.h) marks.push({ t: "path", d: `M${r(cx)},${r(cy)}V${r(y + part.h)}`, c: "edge", from: part.item.number, to: part.item.number });
    marks.push({ t: "circle", x: cx, y: y + part.h, r: 3, c: "dot" });
  }
}

function line(edge, route, parts, dx, dy, marks, around) {
  const from = parts[edge.from], to = parts[edge.to];
  const item = (part) => (part.item ? part.item.number : around ? around.number : -1);
  const d = moved(route.d, dx, dy), isPort = to.kind === "out" || to.kind === "carriedOut", isOutside = from.kind === "outside";
  if (edge.isCarried) { marks.push({ t: "path", d, c: "edge carried", from: edge.of, to: edge.takenBy, arrow: !isPort }); return; }
  const c = "edge" + (route.isStub ? " stub" : "") + (isOutside ? " quiet" : "");
  const ends = { from: isOutside ? -2 : item(from), to: item(to), out: edge.out, into: edge.into, isBad: edge.isBad };
  // What the pointer meets is broader than what is seen.
  marks.push({ t: "path", d, c: "edge hit", ...ends, isBad: false, edge: marks.length });
  marks.push({ t: "path", d, c, ...ends, arrow: !isPort && !route.isStub });
}

// What a result is, beside the line it leaves on: right of it, left where the line turns right, nowhere if both.
function words(edges, lines, parts, dx, dy, marks) {
  const results = new Map();
  edges.forEach((edge, at) => {
    if (edge.isCarried) return;
    // The results of a closed box leave at one place: one word for all, or none.
    const key = parts[edge.from].outs ? edge.from + ":" + edge.out : edge.from;
    if (!results.has(key)) results.set(key, { edge, label: lines[at].label, turns: new Set(), all: new Set() });
    results.get(key).turns.add(lines[at].label.turn);
    results.get(key).all.add(edge.name || edge.shape);
  });
  for (const { edge, label, turns, all } of results.values()) {
    const from = parts[edge.from], word = from.kind === "outside" ? from.shapeWord : all.size === 1 ? [...all][0] : "";
    if (!word || from.kind === "in" || (turns.has(1) && turns.has(-1)) || isSaidInside(from, edge.out)) continue;
    const isLeft = turns.has(1), x = dx + label.x + (isLeft ? -6 : 6);
    const alarm = word.match(ALARM), isName = edge.name && from.kind !== "outside";
    const mark = { t: "text", x, y: dy + label.y + 13, s: cut(word, LONGEST_WORD), c: (isName ? "port" : "shape") + (edge.isBad && alarm ? " bad" : ""), anchor: isLeft ? "end" : undefined };
    if (alarm && from.item) Object.assign(mark, { plain: cut(word.slice(0, alarm.index), LONGEST_WORD), giver: from.item.number, out: edge.out, isBad: edge.isBad });
    marks.push(mark);
  }
}

function isSaidInside(part, out) {
  return part.kind === "group" && part.edges.some((edge) => part.parts[edge.to].kind === "out" && part.parts[edge.to].port === out && edge.shape);
}

// The path of a line, with its numbers moved: V and H have one each, all others come in pairs.
function moved(d, dx, dy) {
  return d.replace(/([MLCQVHvl])([^MLCQVHvl]*)/g, (_, letter, rest) => {
    if (letter === "v" || letter === "l") return letter + rest;
    const numbers = rest.trim().split(/[\s,]+/).map(Number);
    const shifted = numbers.map((number, at) => r(number + (letter === "V" ? dy : letter === "H" ? dx : at % 2 ? dy : dx)));
    return letter + shifted.join(",");
  });
}
