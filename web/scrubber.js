// The iterations of a loop as a picture: a row a module, a column a round, the loss over it. Dragging goes through them.
import { itemWith, sampleOf, shownEvent, timesIn } from "./data.js";
import { duration, fill, h, link, safe } from "./dom.js";

const LEAST_ROUNDS = 3;
/** Without a layer in it, a loop as short as a comprehension over three shapes is no picture. */
const LEAST_WITHOUT_MODULES = 8;
const ENOUGH_ROWS = 18;
const FEW_ROWS = 6;
const MOST_ROWS = 64;
const USUAL_ROW = 13;
const TALLEST_ROW = 26;
const LOWEST_ROW = 3;
const HEIGHT = 200;
const LEAST_HEIGHT = 96;
const LEAST_FOR_TEXT = 9;
const LARGEST_TEXT = 10.5;
const GUTTER = 150;
/** Of a narrow screen the names take no more than this part. */
const LARGEST_GUTTER = 0.28;
const MOST_LOOPS = 2;
const MUCH_LARGER = 30;

/**
 * What a cell can show of a module in a round: a number of an event, or null where it is not known.
 * @type {Record<string, {label: string, isLog: boolean, isSeries?: boolean, of(model: import("./types").Model, event: number): number | null, word(model: import("./types").Model, number: number): string}>}
 */
const MEASURES = {
  rms: {
    label: "size of the output (rms)",
    isLog: true,
    of: (model, event) => {
      const stats = statsOf(model, event);
      return stats && stats.mean !== undefined && stats.std !== undefined ? Math.hypot(stats.mean, stats.std) : null;
    },
    word: (_, number) => number.toPrecision(3),
  },
  std: {
    label: "spread of the output (σ)",
    isLog: true,
    of: (model, event) => {
      const stats = statsOf(model, event);
      return stats && stats.std !== undefined ? stats.std : null;
    },
    word: (_, number) => number.toPrecision(3),
  },
  gradient: {
    label: "size of the gradient (norm)",
    isLog: true,
    isSeries: true,
    of: () => null,
    word: (_, number) => number.toPrecision(3),
  },
  update: {
    label: "size of the update (norm)",
    isLog: true,
    isSeries: true,
    of: () => null,
    word: (_, number) => number.toPrecision(3),
  },
  zeros: {
    label: "zeros in the output",
    isLog: false,
    of: (model, event) => {
      const stats = statsOf(model, event);
      return stats && stats.zeros !== undefined ? stats.zeros : null;
    },
    word: (_, number) => `${Math.round(number).toLocaleString("en")} zeros`,
  },
  time: {
    label: "host time",
    isLog: true,
    of: (model, event) => (model.events.spent[event] >= 0 ? model.events.spent[event] : null),
    word: (model, number) => duration(number, model.tick),
  },
};

/** @param {import("./types").Model} model @param {number} event */
function statsOf(model, event) {
  const value = model.events.gives[event][0];
  return value === undefined ? null : model.values.stats[value] || null;
}

/**
 * @param {import("./types").App} app
 * @param {HTMLElement} pane
 */
export function makeScrubber(app, pane) {
  const { model } = app;
  const hasStats = Object.keys(model.values.stats).length > 0;
  const names = Object.keys(MEASURES).filter((name) => name === "time" || (MEASURES[name].isSeries ? !!model.series[name] : hasStats));
  const options = names.map((name) => h("option", { value: name }, MEASURES[name].label));
  const chooser = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "what the colours show", onchange: () => draw() }, options));
  const strips = h("div", { class: "strips" });
  const legend = h("span", { class: "legend" });
  pane.append(h("header", {}, h("b", {}, "Iterations"), chooser, legend, h("span", { class: "grow" }), h("span", { class: "dim" }, "drag, or type a number")), strips);
  /** @type {Map<number, ReturnType<typeof makeStrip>>} */
  const made = new Map();

  function draw() {
    if (pane.hidden) return;
    const loops = shownLoops(app);
    const shown = loops.map((loop) => {
      const strip = made.get(loop.number) || makeStrip(app, loop);
      made.set(loop.number, strip);
      return strip;
    });
    const elements = shown.map((strip) => strip.element);
    const isSame = elements.length === strips.children.length && elements.every((each, at) => strips.children[at] === each);
    if (!isSame) strips.replaceChildren(...elements);
    const ranges = shown.map((strip) => strip.draw(chooser.value, shown.length));
    const [low, high] = ranges[0] || [0, 0];
    const { word } = MEASURES[chooser.value];
    fill(legend, h("span", { class: "dim" }, word(model, low)), h("i", { class: "scale" }), h("span", { class: "dim" }, word(model, high)), h("i", { class: "cell bad" }), h("span", { class: "dim" }, "NaN or inf"));
  }
  new ResizeObserver(draw).observe(pane);
  return { draw, hasLoops: shownLoops(app).length > 0, strips: () => [...made.values()] };
}

/**
 * The loops around the selected step, else the one that holds the most and what repeats in it; the outermost first.
 * @param {import("./types").App} app
 * @returns {import("./types").Item[]}
 */
export function shownLoops(app) {
  const { model } = app;
  const isLoop = (/** @type {import("./types").Item} */ item) => item.hasRounds && isLong(model, item) && repeats(model, item);
  const around = app.item ? pathTo(model, app.item).filter(isLoop) : [];
  let loop = around[0];
  if (!loop) {
    const loops = model.items.filter((item) => isLoop(item) && !pathTo(model, item).slice(0, -1).some(isLoop));
    loop = loops.sort((a, b) => weight(b) - weight(a))[0];
  }
  if (!loop) return [];
  const inner = around.slice(1);
  if (!inner.length) {
    const nested = model.items.filter((item) => isLoop(item) && item !== loop && pathTo(model, item).includes(loop) && holdsModules(model, item));
    inner.push(...nested.sort((a, b) => weight(b) - weight(a)).slice(0, 1));
  }
  return [loop, ...inner].slice(0, MOST_LOOPS);
}

/** @param {import("./types").Model} model @param {import("./types").Item} loop */
function isLong(model, loop) {
  const rounds = loop.slots.length;
  return rounds >= LEAST_WITHOUT_MODULES || (rounds >= LEAST_ROUNDS && holdsModules(model, loop));
}

/** @param {import("./types").Model} model @param {import("./types").Item} item */
function pathTo(model, item) {
  const path = [item];
  while (path[0].parent >= 0) path.unshift(model.items[path[0].parent]);
  return path;
}

/**
 * In which of all rounds of a loop an event was; -1 if in none.
 * @param {import("./types").Model} model
 * @param {import("./types").Item} loop
 * @param {number} event
 */
function roundOf(model, loop, event) {
  let item = event < 0 ? null : itemWith(model, event);
  let at = item ? item.nodes.indexOf(shownEvent(model, event)) : -1;
  while (item && item !== loop) {
    at = item.slots[at];
    item = model.items[item.parent];
  }
  return item ? at : -1;
}

/** @param {import("./types").Item} item @returns {number} */
function weight(item) {
  return item.children.reduce((sum, child) => sum + weight(child), item.nodes.length);
}

/** @param {import("./types").Model} model @param {import("./types").Item} item @returns {boolean} */
function holdsModules(model, item) {
  return item.children.some((child) => (child.nodes.length > 0 && sampleOf(model, child.nodes[0]).kind === "module") || holdsModules(model, child));
}

/**
 * For each round of a loop, and each step in it, the event; steps are known by their module, else by their name.
 * @param {import("./types").Model} model
 * @param {import("./types").Item} loop
 */
export function roundsOf(model, loop) {
  /** @type {Map<string, {name: string, root: string, path: string, depth: number, isModule: boolean, events: number[][]}>} */
  const rows = new Map();
  const size = loop.slots.length;
  /** @param {import("./types").Item} item @param {number[]} rounds for each of its times, which round */
  const walk = (item, rounds) => {
    item.nodes.forEach((event, at) => {
      const sample = sampleOf(model, event);
      const isModule = sample.kind === "module";
      const path = isModule ? sample.module : item.title;
      const root = isModule ? sample.root : "";
      const key = `${isModule}${root} ${path}`;
      const row = rows.get(key) || { name: path || root || sample.name, root, path, depth: path.split(".").length, isModule, events: [] };
      rows.set(key, row);
      (row.events[rounds[at]] = row.events[rounds[at]] || []).push(event);
    });
    for (const child of item.children) walk(child, child.slots.map((slot) => rounds[slot]));
  };
  const own = Array.from({ length: size }, (_, at) => at);
  for (const child of loop.children) walk(child, child.slots.map((slot) => own[slot]));
  const all = [...rows.values()];
  // The model itself is what its layers are, unless it has none that were seen.
  const modules = all.filter((row) => row.isModule);
  const layers = modules.filter((row) => row.path);
  // Of two models, both may have a layer of that name.
  if (new Set(layers.map((row) => row.root)).size > 1) {
    for (const row of layers) row.name = `${row.root}.${row.path}`;
  }
  if (layers.length) return fewer(layers);
  return fewer(modules.length ? modules : all);
}

/**
 * Whether a picture of a loop tells something: a step of it was in half of its rounds. Over layers, none is in two.
 * @param {import("./types").Model} model
 * @param {import("./types").Item} loop
 */
function repeats(model, loop) {
  const known = repeating.get(loop);
  if (known !== undefined) return known;
  const isOften = roundsOf(model, loop).some((row) => 2 * Object.keys(row.events).length >= loop.slots.length);
  repeating.set(loop, isOften);
  return isOften;
}
/** @type {WeakMap<import("./types").Item, boolean>} */
const repeating = new WeakMap();

/**
 * The innermost that still fit: of deep models the outer modules. Of a model of many layers rather more than none.
 * @template {{root: string, path: string, depth: number}} T
 * @param {T[]} rows
 */
function fewer(rows) {
  const isOuter = (/** @type {T} */ row, /** @type {T[]} */ all) => all.some((other) => other.root === row.root && other.path.startsWith(`${row.path}.`));
  const leaves = rows.filter((row) => !isOuter(row, rows));
  if (leaves.length <= ENOUGH_ROWS) return leaves;
  let found = leaves;
  for (let depth = Math.max(...rows.map((row) => row.depth)); depth > 0; depth--) {
    const cut = rows.filter((row) => row.depth <= depth);
    const outer = cut.filter((row) => !isOuter(row, cut));
    if (outer.length < FEW_ROWS) break;
    found = outer;
    if (outer.length <= ENOUGH_ROWS) break;
  }
  return found.slice(0, MOST_ROWS);
}

// ---------------------------------------------------------------- one loop

/**
 * @param {import("./types").App} app
 * @param {import("./types").Item} loop
 */
function makeStrip(app, loop) {
  const { model } = app;
  const rows = roundsOf(model, loop);
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "heat", tabindex: 0, role: "slider", "aria-label": `iteration of ${loop.title}`, "aria-valuemin": 1 }));
  const cursor = h("div", { class: "cursor", "aria-hidden": true });
  const tip = h("div", { class: "tip", hidden: true });
  const number = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, "aria-label": `go to iteration of ${loop.title}` }));
  const of = h("span", { class: "dim" });
  const lossKey = h("span", { class: "dim losses", hidden: true });
  const title = h("code", { class: "dim", title: loop.title }, loop.title);
  const badRound = roundOf(model, loop, app.trail.source);
  const pin = link(app, app.trail.source, { class: "pin", title: "where the first bad value was made", hidden: true }, "first bad value");
  const element = h("div", { class: "strip" }, h("div", { class: "about" }, title, h("label", {}, number, of), lossKey), h("div", { class: "heatmap" }, canvas, cursor, pin, tip));
  let painted = "";
  let measure = "";
  /** How much room the names of the rows have. */
  let gutter = GUTTER;
  /** @type {[number, number]} */
  let range = [0, 0];
  /** @type {(number | null)[][]} */
  let cells = [];

  /** The rounds that are shown: of a loop in a loop those of one time of the outer one. */
  function span() {
    const around = model.items[loop.parent];
    const [first, last] = timesIn(loop, around ? app.shown(around).at : 0);
    if (last > first) return [first, last];
    // It is not in the round that is shown of the loop around it: then in the next that it is in.
    return timesIn(loop, loop.slots[Math.min(first, loop.slots.length - 1)]);
  }
  const now = () => app.rounds.get(loop.number) || 0;
  /** How the reader counts a round: from 1, where only some were kept through the whole run. */
  const numberOf = (/** @type {number} */ at) => (loop.numbers ? loop.numbers[at] : at - span()[0] + 1);
  /** Go to a round by that number, or to the nearest that was kept. */
  function goToNumber(/** @type {number} */ wanted) {
    const [first, last] = span();
    if (!loop.numbers) {
      go(wanted - 1);
      return;
    }
    const distance = (/** @type {number} */ each) => Math.abs(each - wanted);
    const nearest = loop.numbers.reduce((best, each, at, all) => (distance(each) < distance(all[best]) ? at : best), 0);
    if (nearest >= first && nearest < last) go(nearest - first);
    else app.goToRound(loop, nearest);
  }

  /** @param {string} name what the colours show @param {number} strips how many share the room */
  function draw(name, strips) {
    const [first, last] = span();
    const size = last - first;
    const width = canvas.parentElement ? canvas.parentElement.clientWidth : 0;
    gutter = Math.min(GUTTER, Math.round(width * LARGEST_GUTTER));
    const key = [name, first, last, width, strips, document.documentElement.className].join();
    if (key !== painted && width > 0) {
      if (measure !== name) {
        measure = name;
        if (MEASURES[name].isSeries) cells = rows.map((row) => seriesOf(row.root, row.path, name));
        else cells = rows.map((row) => Array.from({ length: loop.slots.length }, (_, at) => cell(row.events[at], name)));
        range = rangeOf(cells);
      }
      paint(first, last, width, HEIGHT / strips);
      painted = key;
    }
    const at = Math.min(now(), size - 1);
    const wide = (width - gutter) / Math.max(1, size);
    cursor.style.left = `${gutter + at * wide}px`;
    cursor.style.width = `${Math.max(2, wide)}px`;
    pin.hidden = badRound < first || badRound >= last;
    pin.style.left = `${gutter + (badRound - first + 0.5) * wide}px`;
    const total = loop.numbers ? loop.total : size;
    number.max = String(total);
    if (document.activeElement !== number) number.value = String(numberOf(first + at));
    of.textContent = `of ${total.toLocaleString("en")}`;
    if (loop.numbers) of.textContent += `, ${size.toLocaleString("en")} of them kept here`;
    canvas.setAttribute("aria-valuemax", String(total));
    canvas.setAttribute("aria-valuenow", String(numberOf(first + at)));
    return range;
  }

  /** @type {number[]} */
  let starts = [];
  /** Of the parameters of a module and of those in it, all together, by round. */
  function seriesOf(/** @type {string} */ root, /** @type {string} */ module, /** @type {string} */ name) {
    if (!starts.length) starts = firstEvents(loop);
    /** @type {(number | null)[]} */
    const squares = Array.from({ length: loop.slots.length }, () => null);
    for (const [owner, path, events, norms] of model.series[name]) {
      if (owner !== root || (module && path !== module && !path.startsWith(`${module}.`))) continue;
      events.forEach((event, at) => {
        const round = lastBefore(starts, event);
        const norm = norms[at];
        if (round >= 0) squares[round] = (squares[round] || 0) + (norm === null ? NaN : norm * norm);
      });
    }
    return squares.map((sum) => (sum === null ? null : Math.sqrt(sum)));
  }

  /** The mean of the events of a cell; NaN where one of them gave something that is not finite. */
  function cell(/** @type {number[] | undefined} */ events, /** @type {string} */ name) {
    let sum = 0;
    let known = 0;
    for (const event of events || []) {
      const stats = statsOf(model, event);
      if (stats && (stats.nan || stats.inf)) return NaN;
      const found = MEASURES[name].of(model, event);
      if (found === null) continue;
      sum += found;
      known++;
    }
    return known ? sum / known : null;
  }

  /** @param {number} first @param {number} last @param {number} width @param {number} most */
  function paint(first, last, width, most) {
    const size = last - first;
    const high = rowHeight(rows.length, most);
    const labelled = Math.ceil(LEAST_FOR_TEXT / high);
    const height = Math.max(1, rows.length) * high;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const style = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
    pen.scale(ratio, ratio);
    pen.font = `${Math.min(LARGEST_TEXT, Math.max(high, LEAST_FOR_TEXT))}px ${colour("mono")}`;
    const room = width - gutter;
    const columns = Math.max(1, Math.min(size, Math.floor(room)));
    const wide = room / columns;
    const [low, top] = range;
    rows.forEach((row, at) => {
      const y = at * high;
      if (at % labelled === 0) {
        pen.globalAlpha = 1;
        pen.fillStyle = colour("dim");
        pen.fillText(fitted(pen, safe(row.name), gutter - 12), 4, y + Math.max(high, LEAST_FOR_TEXT) / 2 + 3.5);
      }
      for (let column = 0; column < columns; column++) {
        const number = worst(cells[at], first + Math.floor((column * size) / columns), first + Math.ceil(((column + 1) * size) / columns));
        if (number === null) continue;
        pen.fillStyle = Number.isNaN(number) ? colour("red") : colour("cell");
        pen.globalAlpha = Number.isNaN(number) ? 1 : 0.06 + 0.86 * share(number, low, top);
        pen.fillRect(gutter + column * wide, y, Math.max(0.5, wide > 5 ? wide - 1 : wide), high - (high > 7 ? 1 : 0));
      }
    });
    pen.globalAlpha = 1;
    paintLoss(pen, first, last, room, height, colour);
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} first @param {number} last @param {number} room @param {number} height @param {(name: string) => string} colour */
  function paintLoss(pen, first, last, room, height, colour) {
    const curve = lossOf(app, loop);
    const points = curve.points.filter(([round]) => round >= first && round < last);
    const known = points.map(([, loss]) => loss).filter(Number.isFinite);
    lossKey.hidden = known.length < 2;
    if (known.length < 2) return;
    const ends = [Math.min(...known), Math.max(...known)];
    // One large loss at the start would make a flat line of all that follows.
    const isLog = ends[0] > 0 && ends[1] > MUCH_LARGER * ends[0];
    const levelOf = (/** @type {number} */ loss) => (isLog ? Math.log(loss) : loss);
    const [low, high] = ends.map(levelOf);
    fill(lossKey, h("i", {}), `${safe(curve.name)} ${ends[0].toPrecision(3)} … ${ends[1].toPrecision(3)}${isLog ? ", log scale" : ""}`);
    const x = (/** @type {number} */ round) => gutter + ((round - first + 0.5) / (last - first)) * room;
    const y = (/** @type {number} */ loss) => (high > low ? 5 + ((high - levelOf(loss)) / (high - low)) * (height - 10) : height / 2);
    for (const [width, name] of /** @type {[number, string][]} */ ([[4, "paper"], [1.6, "loss"]])) {
      pen.beginPath();
      let isOpen = false;
      for (const [round, loss] of points) {
        if (Number.isFinite(loss)) {
          if (isOpen) pen.lineTo(x(round), y(loss));
          else pen.moveTo(x(round), y(loss));
        }
        isOpen = Number.isFinite(loss);
      }
      pen.lineWidth = width;
      pen.strokeStyle = colour(name);
      pen.stroke();
    }
    pen.fillStyle = colour("red");
    for (const [round, loss] of points) {
      if (Number.isFinite(loss)) continue;
      pen.beginPath();
      pen.arc(x(round), height - 5, 2.5, 0, 7);
      pen.fill();
    }
  }

  function rangeOf(/** @type {(number | null)[][]} */ all) {
    let low = Infinity;
    let high = -Infinity;
    for (const row of all) {
      for (const number of row) {
        if (number === null || !Number.isFinite(number)) continue;
        if (number > 0 || !MEASURES[measure].isLog) low = Math.min(low, number);
        high = Math.max(high, number);
      }
    }
    return /** @type {[number, number]} */ (low <= high ? [low, high] : [0, 0]);
  }

  function share(/** @type {number} */ number, /** @type {number} */ low, /** @type {number} */ high) {
    if (high <= low) return 0.5;
    if (!MEASURES[measure].isLog) return (number - low) / (high - low);
    if (number <= 0) return 0;
    return (Math.log(number) - Math.log(low)) / (Math.log(high) - Math.log(low));
  }

  // ---------------------------------------------------------------- going there

  let waiting = -1;
  function go(/** @type {number} */ at) {
    const [first, last] = span();
    const wanted = Math.max(0, Math.min(last - first - 1, at));
    if (wanted === now() && waiting < 0) return;
    const isUnderWay = waiting >= 0;
    waiting = wanted;
    if (isUnderWay) return;
    requestAnimationFrame(() => {
      const to = waiting;
      waiting = -1;
      const same = sameIn(to);
      if (same >= 0) app.select(same, false);
      else app.scrub(loop, to, span()[0] + to);
    });
  }
  /** The event of the selected layer in another round, whose steps may have a box of their own there. */
  function sameIn(/** @type {number} */ to) {
    const isInside = app.item !== null && app.item.nodes.length > 0 && pathTo(model, app.item).includes(loop);
    if (!isInside) return -1;
    const { module, root, kind } = sampleOf(model, app.selected);
    const row = kind === "module" ? rows.find((each) => each.isModule && each.path === module && each.root === root) : undefined;
    const events = row ? row.events[span()[0] + to] : undefined;
    return events ? events[0] : -1;
  }
  function place(/** @type {PointerEvent} */ pointer) {
    const box = canvas.getBoundingClientRect();
    const [first, last] = span();
    const at = Math.floor(((pointer.clientX - box.left - gutter) / (box.width - gutter)) * (last - first));
    const row = Math.floor(((pointer.clientY - box.top) / box.height) * rows.length);
    return { at: Math.max(0, Math.min(last - first - 1, at)), row, first, isOver: pointer.clientX >= box.left + gutter };
  }
  canvas.addEventListener("pointerdown", (down) => {
    const { at, isOver } = place(down);
    if (!isOver) return;
    canvas.setPointerCapture(down.pointerId);
    go(at);
  });
  canvas.addEventListener("pointermove", (move) => {
    const { at, row, first, isOver } = place(move);
    if (canvas.hasPointerCapture(move.pointerId)) go(at);
    const number = isOver && rows[row] ? cells[row][first + at] : null;
    tip.hidden = number === null || number === undefined;
    if (number === null || number === undefined) return;
    const word = Number.isNaN(number) ? "NaN or inf" : MEASURES[measure].word(model, number);
    tip.textContent = safe(`${rows[row].name} · iteration ${numberOf(first + at).toLocaleString("en")} · ${word}`);
    tip.style.left = `${Math.min(canvas.clientWidth - 220, move.clientX - canvas.getBoundingClientRect().left + 12)}px`;
  });
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  canvas.addEventListener("dblclick", (click) => {
    const { at, row, first } = place(/** @type {any} */ (click));
    const events = rows[row] ? rows[row].events[first + at] : undefined;
    if (events) app.select(events[0]);
  });
  canvas.addEventListener("keydown", (key) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    const by = steps[/** @type {keyof typeof steps} */ (key.key)];
    const [first, last] = span();
    let to = by === undefined ? -1 : Math.max(0, now() + by);
    if (key.key === "Home") to = 0;
    if (key.key === "End") to = last - first - 1;
    if (to < 0) return;
    key.preventDefault();
    go(to);
  });
  number.addEventListener("change", () => {
    if (number.value !== "") goToNumber(Math.round(Number(number.value)));
  });
  return { element, draw, rows, loop };
}

/** Few rows are taller, so that the loss over them can be read; many are lower. @param {number} rows @param {number} most */
function rowHeight(rows, most) {
  const usual = Math.min(USUAL_ROW, Math.floor(most / Math.max(1, rows)));
  const tall = Math.min(TALLEST_ROW, Math.floor(Math.min(most, LEAST_HEIGHT) / Math.max(1, rows)));
  return Math.max(LOWEST_ROW, usual, tall);
}

/**
 * The rounds of a loop with the loss in each: what a loss function gave, else what the run is said to have lost. Of
 * several in a round it is the last, which is named then.
 * @param {import("./types").App} app
 * @param {import("./types").Item} loop
 * @returns {{name: string, points: [number, number][]}}
 */
function lossOf(app, loop) {
  const { model } = app;
  /** @type {Map<number, number>} */
  const found = new Map();
  /** @type {import("./types").Item[]} */
  const givers = [];
  /** @param {import("./types").Item} item @param {number[]} rounds */
  const walk = (item, rounds) => {
    if (item.hue === "loss") {
      givers.push(item);
      item.nodes.forEach((event, at) => {
        const stats = statsOf(model, event);
        const isScalar = /\[\]$/.test(model.values.word[model.events.gives[event][0]] || "");
        if (stats && isScalar) found.set(rounds[at], stats.nan || stats.inf ? NaN : stats.mean);
      });
    }
    for (const child of item.children) walk(child, child.slots.map((slot) => rounds[slot]));
  };
  for (const child of loop.children) walk(child, child.slots);
  if (!found.size) {
    const about = ((model.verdict && model.verdict.about) || []).find((/** @type {any} */ line) => line.points.length);
    const starts = firstEvents(loop);
    for (const [event, loss] of everyLoss(model, about ? about.points : [])) {
      const round = lastBefore(starts, event);
      if (round >= 0) found.set(round, loss === null ? NaN : loss);
    }
  }
  const name = (givers.length > 1 && givers[givers.length - 1].variable) || "loss";
  return { name, points: [...found].sort((a, b) => a[0] - b[0]) };
}

/**
 * The curve of the loss has a point for some steps: with the same backward in the others, one for each.
 * @param {import("./types").Model} model
 * @param {[number, number | null][]} points
 * @returns {[number, number | null][]}
 */
function everyLoss(model, points) {
  const item = points.length ? itemWith(model, points[0][0]) : null;
  if (!item || !points.every(([event]) => model.itemOf.get(event) === item)) return points;
  return item.nodes.flatMap((event) => {
    const stats = model.values.stats[model.events.takes[event][0]];
    if (!stats) return [];
    return [/** @type {[number, number | null]} */ ([event, stats.nan || stats.inf ? null : stats.mean ?? null])];
  });
}

/** @param {import("./types").Item} loop the first event of each round */
function firstEvents(loop) {
  const found = new Array(loop.slots.length).fill(Infinity);
  /** @param {import("./types").Item} item @param {number[]} rounds */
  const walk = (item, rounds) => {
    item.nodes.forEach((event, at) => {
      found[rounds[at]] = Math.min(found[rounds[at]], event);
    });
    for (const child of item.children) walk(child, child.slots.map((slot) => rounds[slot]));
  };
  for (const child of loop.children) walk(child, child.slots);
  // A round in which nothing has a box stands just before the next one, so that all are in order.
  for (let at = found.length - 2; at >= 0; at--) {
    if (found[at] === Infinity) found[at] = found[at + 1] - 0.5;
  }
  return found;
}

/** @param {number[]} sorted @param {number} number the place of the last that is not above it */
function lastBefore(sorted, number) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= number) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** @param {(number | null)[]} row @param {number} from @param {number} to */
function worst(row, from, to) {
  /** @type {number | null} */
  let found = null;
  for (let at = from; at < to; at++) {
    const number = row[at];
    if (number === null || number === undefined) continue;
    if (Number.isNaN(number)) return NaN;
    if (found === null || number > found) found = number;
  }
  return found;
}

/** @param {CanvasRenderingContext2D} pen @param {string} text @param {number} room */
function fitted(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let from = 0;
  while (from < text.length && pen.measureText(`…${text.slice(from)}`).width > room) from++;
  return `…${text.slice(from)}`;
}
