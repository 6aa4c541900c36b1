// The data of the page as Python made it, taken apart: columns become arrays, differences become numbers again.
// Nothing is worked out here that Python has not said: only looked up the other way round.

export function read(data) {
  const text = data.text, model = { run: data.run, text, tick: data.tick, verdict: data.verdict || null, trail: data.trail || null, diff: null, series: data.series || {} };
  model.items = readItems(data.items, text);
  model.levels = readLevels(data.levels, text);
  model.top = model.items.filter((item) => item.parent < 0);
  model.samples = data.samples.map((sample) => readSample(sample, text));
  model.files = data.files.map((file) => readFile(file, text));
  model.events = readEvents(data.events);
  model.values = readValues(data.values, text);
  readIo(data.events, data.values, model);
  index(model);
  if (data.diff) model.diff = readDiff(data.diff);
  return model;
}

function readItems(columns, text) {
  const items = [];
  let node = 0, next = 0, slot = 0, nextSlot = 0;
  columns.parent.forEach((up, at) => {
    /** @type {any} */
    const item = { number: at, parent: at - up, most: columns.most[at], hasRounds: !!columns.rounds[at], parameters: columns.parameters[at], nodes: [], slots: [], children: [], where: "", numbers: null, total: columns.times[at] };
    for (const name of ["kind", "hue", "title", "detail", "variable", "gives", "code", "often", "only"]) item[name] = text[columns[name][at]];
    for (let count = columns.count[at]; count > 0; count--) { node += columns.nodes[next++]; item.nodes.push(node); }
    for (let count = columns.times[at]; count > 0; count--) { slot += columns.slots[nextSlot++]; item.slots.push(slot); }
    items.push(item);
    if (item.parent >= 0) items[item.parent].children.push(item);
  });
  // Loops of which only some rounds were kept: which of all rounds of the run each is.
  for (const [at, total, steps] of columns.numbers || []) {
    let number = 0;
    items[at].numbers = steps.map((step) => (number += step));
    items[at].total = total;
  }
  return items;
}

function readLevels(levels, text) {
  const found = new Map();
  for (const [number, flat, outside, ins, outs] of levels) {
    /** @type {import("./types").Level} */
    const level = { edges: [], outside: [], ins: ins.map((at) => text[at]), outs: outs.map((at) => text[at]) };
    for (let at = 0; at < flat.length; at += 7) {
      const [from, out, to, into, shape, name, flags] = flat.slice(at, at + 7);
      level.edges.push({ from, out, to, into, shape: text[shape], name: text[name], isBack: (flags & 1) > 0, isBad: (flags & 2) > 0 });
    }
    for (let at = 0; at < outside.length; at += 3) {
      level.outside.push({ word: text[outside[at]], shape: text[outside[at + 1]], isUnknown: !!outside[at + 2] });
    }
    found.set(number, level);
  }
  return found;
}

function readSample(sample, text) {
  const [kind, name, code, detail, args, result, module, at, stack, error, note, thread, roles, results, operands, target, phase, process, root] = sample;
  const names = (numbers) => numbers.map((number) => text[number]);
  return {
    kind: text[kind], name: text[name], code: text[code], detail: text[detail], args: text[args], result: text[result],
    module: text[module], at: readPlace(at, text), stack: stack.map((each) => readPlace(each, text)).filter(Boolean),
    error: text[error], note: text[note], thread: text[thread], roles: names(roles), results: names(results),
    operands: names(operands), target: names(target), phase: text[phase], process, root: text[root],
  };
}

function readPlace(at, text) {
  if (!at.length) return null;
  const [file, line, endLine, col, endCol, name, path] = at;
  return { file, line, endLine, col, endCol, function: text[name], path: text[path] };
}

function readFile(file, text) {
  const margins = new Map();
  for (let at = 0; at < file.lines.length; at += 5) {
    const [line, times, word, alarm, isBad] = file.lines.slice(at, at + 5);
    margins.set(line, { times, word: text[word], alarm: text[alarm], isBad: isBad > 0 });
  }
  return { name: text[file.name], path: text[file.path], pieces: file.pieces.map(([first, number]) => ({ first, lines: text[number].split("\n") })), margins };
}

// Run B's files have texts of their own.
function readDiff(diff) {
  const files = diff.files.map((file) => readFile(file, diff.text_of_files));
  const rows = diff.rows.map(([value, event, error, tolerance, agrees, file, line]) => ({ value, event, error, tolerance, agrees: agrees > 0, file, line }));
  return { ...diff, files, rows };
}

function readEvents(columns) {
  const size = columns.sample.length, start = new Float64Array(size), parent = new Int32Array(size);
  let clock = 0;
  for (let at = 0; at < size; at++) {
    clock += columns.start[at];
    start[at] = clock;
    parent[at] = columns.up[at] ? at - columns.up[at] : -1;
  }
  const within = new Map(), half = columns.within.length / 2;
  for (let at = 0, event = 0, anchor = 0; at < half; at++) within.set((event += columns.within[at]), (anchor += columns.within[half + at]));
  return { size, sample: columns.sample, parent, start, spent: columns.spent, takes: [], gives: [], within };
}

function readValues(columns, text) {
  const maker = [];
  let last = 0;
  for (const step of columns.maker) { last += step; maker.push(last); }
  return { word: columns.word.map((at) => text[at]), maker, parameters: new Set(columns.parameter), stats: readStats(columns.stats), sizes: columns.sizes, device: columns.device && columns.device.length ? columns.device.map((at) => text[at]) : null };
}

// Statistics by the place of their value: columns, in which equal ones are there once. Pictures have them as they are.
function readStats(packed) {
  if (!packed.columns) return packed;
  const { names, columns, at, row, rest } = packed;
  const rows = (columns[0] || []).map((_, number) => {
    const known = {};
    names.forEach((name, column) => {
      const value = columns[column][number];
      if (value !== null) known[name] = value;
    });
    return known;
  });
  const found = {};
  let place = 0;
  let number = 0;
  at.forEach((step, each) => {
    place += step;
    number += row[each];
    found[place] = rest[place] ? { ...rows[number], ...rest[place] } : rows[number];
  });
  return found;
}

function readIo(events, values, model) {
  let at = 0, known = 0;
  const next = () => { const back = events.io[at++]; return back ? known - back : known++; };
  for (let event = 0; event < model.events.size; event++) {
    model.events.takes.push(Array.from({ length: events.takes[event] }, next));
    model.events.gives.push(Array.from({ length: events.gives[event] }, next));
  }
  model.sources = new Map();
  for (let each = 0; each < values.through.length; each += 3) {
    const [event, argument, value] = values.through.slice(each, each + 3);
    model.sources.set(event + ":" + argument, value);
  }
}

// ---------------------------------------------------------------- looked up the other way round

function index(model) {
  model.itemOf = new Map();
  for (const item of model.items) for (const node of item.nodes) model.itemOf.set(node, item);
  // The first event of each sample.
  model.firstOf = [];
  for (let event = model.events.size - 1; event >= 0; event--) model.firstOf[model.events.sample[event]] = event;
  model.readers = new Map();
  for (let event = 0; event < model.events.size; event++) {
    model.events.takes[event].forEach((value, at) => {
      const source = sourceValue(model, event, at);
      if (!model.readers.has(source)) model.readers.set(source, []);
      model.readers.get(source).push(event);
    });
  }
  model.byLine = new Map();
  for (const event of model.itemOf.keys()) {
    const at = sampleOf(model, event).at;
    if (!at || at.file < 0) continue;
    const key = at.file + ":" + at.line;
    if (!model.byLine.has(key)) model.byLine.set(key, []);
    model.byLine.get(key).push(event);
  }
  for (const events of model.byLine.values()) events.sort((a, b) => a - b);
  model.failing = failingItems(model);
  nameGroups(model);
}

// What repeats together is called by its first and last step; what ran in another thread or process says so.
function nameGroups(model) {
  for (const item of [...model.items].reverse()) {
    if (item.kind !== "repeat" || item.title) continue;
    const [first, last] = [item.children[0], item.children[item.children.length - 1]].map((child) => (child ? child.title || child.code : ""));
    item.title = first && last && first !== last ? `${first} … ${last}` : first || "steps";
  }
  const firstIn = (item) => (item.nodes.length ? item.nodes[0] : item.children.length ? firstIn(item.children[0]) : -1);
  const samples = model.top.map((item) => (firstIn(item) >= 0 ? sampleOf(model, firstIn(item)) : null));
  const processes = new Set(samples.map((sample) => sample && sample.process)).size;
  const several = processes > 1;
  const threads = new Set(samples.map((sample) => sample && sample.process + " " + sample.thread));
  model.top.forEach((item, at) => {
    const sample = samples[at];
    if (sample && threads.size > 1) item.where = threads.size > processes ? threadWord(sample.process, sample.thread, several) : processWord(sample);
  });
}

// A thread, with its process where there are several and its name does not tell.
export function threadWord(process, name, several) {
  if (!several || /\b(process|rank) \d/.test(name)) return name;
  return `process ${process} · ${name}`;
}

// Of a process with one thread the number is enough, unless the thread says which rank it is.
function processWord({ process, thread }) {
  return /\brank \d/.test(thread) ? thread : `process ${process}`;
}

export function sampleOf(model, event) {
  return model.samples[model.events.sample[event]];
}

export function sourceValue(model, event, argument) {
  const through = model.sources.get(event + ":" + argument);
  return through === undefined ? model.events.takes[event][argument] : through;
}

// The item that an event is drawn in: its own, or that of the nearest one around it.
export function itemWith(model, event) {
  const shown = shownEvent(model, event);
  return shown >= 0 ? model.itemOf.get(shown) : null;
}

export function shownEvent(model, event) {
  const { within, parent } = model.events;
  while (event >= 0 && !model.itemOf.has(event)) event = within.has(event) ? within.get(event) : parent[event];
  return event;
}

// The outermost event with a box that holds an event but not another one: what that other one sees of it.
export function seenFrom(model, event, other) {
  const around = new Set();
  for (let at = other; at >= 0; at = model.events.parent[at]) around.add(at);
  let found = shownEvent(model, event);
  for (let at = found; at >= 0 && !around.has(at); at = model.events.parent[at]) if (model.itemOf.has(at)) found = at;
  return found;
}

// Which times of an item were in one time of the one around it: from the first, up to but without the last.
export function timesIn(item, slot) {
  const first = lowest(item.slots, slot);
  return [first, lowest(item.slots, slot + 1)];
}

// A round as its reader counts: `7 of 12`; where only some were kept, among all of the run.
export function roundWord(item, at, slot) {
  const [first, last] = timesIn(item, slot);
  const number = item.numbers ? item.numbers[at] : at - first + 1;
  return `${number.toLocaleString("en")} of ${(item.numbers ? item.total : last - first).toLocaleString("en")}`;
}

function lowest(sorted, number) {
  let low = 0, high = sorted.length;
  while (low < high) { const middle = (low + high) >> 1; if (sorted[middle] < number) low = middle + 1; else high = middle; }
  return low;
}

function failingItems(model) {
  const found = new Set();
  let item = model.run.failed >= 0 ? itemWith(model, model.run.failed) : null;
  while (item) { found.add(item.number); item = model.items[item.parent]; }
  return found;
}

// The heaviest box that holds others is opened while there are few boxes; of a failed run, all on the way to it.
export function opened(model, most = 26, depth = null) {
  const open = new Set();
  if (depth !== null) {
    const walk = (items, level) => items.forEach((item) => {
      if (item.children.length && level < depth) { open.add(item.number); walk(item.children, level + 1); }
    });
    walk(model.top, 0);
    return open;
  }
  for (const number of model.failing) if (model.items[number].children.length) open.add(number);
  const sizes = new Map(), size = (item) => {
    if (!sizes.has(item.number)) sizes.set(item.number, item.nodes.length + item.children.reduce((sum, child) => sum + size(child), 0));
    return sizes.get(item.number);
  };
  const boxes = () => { let count = 0; const walk = (items) => items.forEach((item) => { count++; if (open.has(item.number)) walk(item.children); }); walk(model.top); return count; };
  const closed = (items) => items.flatMap((item) => (open.has(item.number) ? closed(item.children) : item.children.length ? [item] : []));
  for (let turn = 0; turn < 100; turn++) {
    const now = boxes();
    const fits = closed(model.top).filter((item) => item.kind !== "library" && item.children.length <= 120 && (now + item.children.length <= most || !open.size));
    if (!fits.length) break;
    open.add(fits.reduce((best, item) => (size(item) > size(best) ? item : best)).number);
  }
  return open;
}
