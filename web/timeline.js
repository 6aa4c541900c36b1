// @ts-check
// The timeline: host time by process and thread, a row a level, on a canvas: a hundred thousand events are as many
// rectangles, of which only those are painted that are wider than what is painted already.
import { itemWith, sampleOf, shownEvent, threadWord } from "./data.js";
import { duration, h, safe } from "./dom.js";

const ROW = 15;
const RULER = 20;
const HEAD = 15;
const GAP = 3;
const MOST_LEVELS = 12;
const NARROWEST = 0.6;
const LEAST_FOR_TEXT = 34;
const LEAST_TICK = 90;
const LEAST_SPAN = 20;
const FAINT = 0.25;
const HUES = ["", "weights", "norm", "activation", "attention", "pool", "dropout", "loss", "train"];

/** @typedef {{process: number, name: string, levels: number, events: number[]}} Thread */

/**
 * @param {import("./types").App} app
 * @param {HTMLElement} pane
 */
export function makeTimeline(app, pane) {
  const { model } = app;
  const title = h("span", { class: "dim" });
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { tabindex: 0, role: "img", "aria-label": "timeline of host time" }));
  const scroll = h("div", { class: "scroll" }, canvas);
  const all = () => {
    view.from = begin;
    view.to = total;
    paint();
  };
  pane.append(h("header", {}, h("b", {}, "Time"), title, h("span", { class: "grow" }), h("button", { title: "all of the run", onclick: all }, "all")), scroll);
  const view = { from: 0, to: 1 };
  // When the first of the steps that are shown began, and when the last one ended.
  let begin = 0;
  let total = 1;
  /** @type {number | null} */
  let process = null;
  /** @type {Thread[] | null} */
  let threads = null;
  const depth = new Int32Array(model.events.size);
  const hue = new Uint8Array(model.events.size);

  function prepare() {
    /** @type {Map<string, Thread>} */
    const found = new Map();
    const { parent, size } = model.events;
    for (let event = 0; event < size; event++) {
      const { process, thread: name } = sampleOf(model, event);
      const around = parent[event];
      const isSame = around >= 0 && sampleOf(model, around).thread === name && sampleOf(model, around).process === process;
      depth[event] = isSame ? depth[around] + 1 : 0;
      hue[event] = hueOf(event);
      const key = `${process} ${name}`;
      const thread = found.get(key) || /** @type {Thread} */ ({ process, name, levels: 0, events: [] });
      found.set(key, thread);
      thread.levels = Math.min(MOST_LEVELS, Math.max(thread.levels, depth[event] + 1));
      thread.events.push(event);
    }
    threads = [...found.values()].sort((a, b) => a.process - b.process);
  }

  /** All of what is shown: of one process the time in which that ran, which may begin late. */
  function measure() {
    const { start, spent } = model.events;
    process = app.process;
    begin = Infinity;
    total = 0;
    for (const { thread } of lanes()) {
      for (const event of thread.events) {
        begin = Math.min(begin, start[event]);
        total = Math.max(total, start[event] + Math.max(0, spent[event]));
      }
    }
    if (begin === Infinity) begin = 0;
    total = Math.max(total, begin + 1);
    view.from = begin;
    view.to = total;
  }

  /** The colour of a step, and of what happened in it. */
  function hueOf(/** @type {number} */ event) {
    const item = model.itemOf.get(event);
    const around = model.events.parent[event];
    if (item) return Math.max(0, HUES.indexOf(item.hue));
    return around >= 0 ? hue[around] : 0;
  }

  /** The threads that are shown, each with where it begins. */
  function lanes() {
    let y = RULER;
    return (threads || []).filter((thread) => app.process === null || thread.process === app.process).map((thread) => {
      const lane = { thread, y: y + HEAD };
      y += HEAD + thread.levels * ROW + GAP;
      return lane;
    });
  }

  function label(/** @type {Thread} */ thread) {
    const isAlone = (threads || []).every((each) => each.process === (threads || [])[0].process);
    return threadWord(thread.process, thread.name, !isAlone);
  }

  // ---------------------------------------------------------------- painting

  function paint() {
    if (pane.hidden) return;
    const isNew = !threads;
    if (isNew) prepare();
    if (isNew || process !== app.process) measure();
    const shown = lanes();
    const last = shown[shown.length - 1];
    const width = scroll.clientWidth;
    const height = last ? last.y + last.thread.levels * ROW + GAP : RULER;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const style = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
    pen.scale(ratio, ratio);
    pen.font = `10.5px ${colour("mono")}`;
    ruler(pen, width, height, colour);
    const scale = width / (view.to - view.from);
    /** @type {Set<number>} */
    const chosen = new Set(app.item ? app.item.nodes : []);
    const colours = {
      hues: HUES.map((name) => (name ? colour(name) : colour("bar"))),
      bar: colour("bar"),
      lit: colour("accent"),
      near: colour("near"),
      failed: colour("red"),
      ink: colour("ink"),
      paper: colour("paper"),
    };
    for (const { thread, y } of shown) {
      pen.globalAlpha = 1;
      pen.fillStyle = colour("dim");
      pen.fillText(safe(label(thread)), 6, y - 4);
      const painted = new Float64Array(MOST_LEVELS).fill(-1);
      for (const event of thread.events) paintEvent(pen, event, y, scale, width, painted, chosen, colours);
    }
    pen.globalAlpha = 1;
    title.textContent = `host time, ${duration(view.to - view.from, model.tick)} · scroll to zoom, drag to move`;
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} event @param {number} y @param {number} scale @param {number} width
   * @param {Float64Array} painted @param {Set<number>} chosen @param {any} colours */
  function paintEvent(pen, event, y, scale, width, painted, chosen, colours) {
    const level = depth[event];
    if (level >= MOST_LEVELS) return;
    const x = (model.events.start[event] - view.from) * scale;
    const w = Math.max(NARROWEST, Math.max(0, model.events.spent[event]) * scale);
    if (x + w < 0 || x > width) return;
    const isSelected = event === app.selected;
    const isLit = isSelected || chosen.has(event);
    const isHit = !!app.found && app.found.events.has(event);
    if (x + w <= painted[level] + 0.5 && !isLit && !isHit) return;
    painted[level] = Math.max(painted[level], x + w);
    const isBad = !!sampleOf(model, event).error || app.trail.events.has(event);
    const top = y + level * ROW;
    const dimmed = app.found && !isHit ? FAINT : 1;
    pen.globalAlpha = dimmed;
    pen.fillStyle = colours.bar;
    if (isBad) pen.fillStyle = colours.failed;
    else if (isSelected) pen.fillStyle = colours.lit;
    else if (isLit || isHit) pen.fillStyle = colours.near;
    else if (hue[event]) {
      // A light shade of the kind's colour, so that text can be read on it.
      pen.fillRect(x, top, Math.max(NARROWEST, w - NARROWEST), ROW - 2);
      pen.globalAlpha = 0.3 * dimmed;
      pen.fillStyle = colours.hues[hue[event]];
    }
    pen.fillRect(x, top, Math.max(NARROWEST, w - NARROWEST), ROW - 2);
    pen.globalAlpha = dimmed;
    if (w <= LEAST_FOR_TEXT) return;
    pen.save();
    pen.beginPath();
    pen.rect(x, top, w - 2, ROW);
    pen.clip();
    pen.fillStyle = isSelected || isBad ? colours.paper : colours.ink;
    pen.fillText(safe(shortName(event)), Math.max(x, 0) + 4, top + 10);
    pen.restore();
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} height @param {(name: string) => string} colour */
  function ruler(pen, width, height, colour) {
    const span = view.to - view.from;
    const step = niceStep((span * LEAST_TICK) / width);
    pen.lineWidth = 1;
    for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
      const x = Math.round(((time - view.from) / span) * width) + 0.5;
      pen.strokeStyle = colour("line");
      pen.beginPath();
      pen.moveTo(x, RULER - 6);
      pen.lineTo(x, height);
      pen.stroke();
      pen.fillStyle = colour("dim");
      pen.fillText(time === 0 ? "0" : duration(time, model.tick), x + 4, RULER - 8);
    }
  }

  // ---------------------------------------------------------------- names

  function name(/** @type {import("./types").Sample} */ sample) {
    return sample.kind === "module" ? sample.module || sample.name : sample.name;
  }

  /** Inside another layer the path below it is enough, and fits. */
  function shortName(/** @type {number} */ event) {
    const sample = sampleOf(model, event);
    const whole = name(sample);
    if (sample.kind !== "module") return whole;
    let around = model.events.parent[event];
    while (around >= 0 && sampleOf(model, around).kind !== "module") around = model.events.parent[around];
    const above = around >= 0 ? sampleOf(model, around).module : "";
    return above && whole.startsWith(`${above}.`) ? whole.slice(above.length + 1) : whole;
  }

  // ---------------------------------------------------------------- the pointer

  function at(/** @type {MouseEvent} */ pointer) {
    const box = canvas.getBoundingClientRect();
    const scale = box.width / (view.to - view.from);
    const time = view.from + (pointer.clientX - box.left) / scale;
    const y = pointer.clientY - box.top;
    const lane = lanes().find((each) => y >= each.y && y < each.y + each.thread.levels * ROW);
    if (!lane) return -1;
    const level = Math.floor((y - lane.y) / ROW);
    const { start, spent } = model.events;
    let best = -1;
    for (const event of lane.thread.events) {
      if (start[event] > time + 1 / scale) break;
      const isOver = depth[event] === level && start[event] + Math.max(0, spent[event]) >= time - 1 / scale;
      if (isOver) best = event;
    }
    return best;
  }

  /** Show another part of the run, as wide as before. */
  function moveTo(/** @type {number} */ from) {
    const span = view.to - view.from;
    view.from = Math.max(begin, Math.min(total - span, from));
    view.to = view.from + span;
    paint();
  }

  canvas.addEventListener("wheel", (wheel) => {
    wheel.preventDefault();
    const box = canvas.getBoundingClientRect();
    const part = (wheel.clientX - box.left) / box.width;
    const span = view.to - view.from;
    if (Math.abs(wheel.deltaX) > Math.abs(wheel.deltaY)) {
      moveTo(view.from + (wheel.deltaX / box.width) * span);
      return;
    }
    const wide = Math.min(total - begin, Math.max(LEAST_SPAN, span * Math.exp(wheel.deltaY / 400)));
    const middle = view.from + part * span;
    view.from = Math.max(begin, Math.min(total - wide, middle - part * wide));
    view.to = view.from + wide;
    paint();
  }, { passive: false });
  let drag = { x: 0, from: 0, isMoved: false };
  canvas.addEventListener("pointerdown", (down) => {
    drag = { x: down.clientX, from: view.from, isMoved: false };
  });
  canvas.addEventListener("pointermove", (move) => {
    if (move.buttons) {
      const by = drag.x - move.clientX;
      drag.isMoved = drag.isMoved || Math.abs(by) > 4;
      if (drag.isMoved) moveTo(drag.from + (by / canvas.clientWidth) * (view.to - view.from));
      return;
    }
    const event = at(move);
    canvas.title = event < 0 ? "" : safe(`${name(sampleOf(model, event))} · ${duration(model.events.spent[event], model.tick)}`);
  });
  canvas.addEventListener("click", (click) => {
    const event = drag.isMoved ? -1 : at(click);
    if (event >= 0) app.select(event);
  });
  new ResizeObserver(paint).observe(pane);
  return {
    draw: paint,
    at: (/** @type {number} */ event) => shownEvent(model, event),
    /** What is painted, for tests: threads by name, the times between ticks, the item that a step belongs to. */
    lanes: () => lanes().map(({ thread, y }) => ({ name: label(thread), y, levels: thread.levels })),
    view: () => ({ ...view, step: niceStep(((view.to - view.from) * LEAST_TICK) / Math.max(1, scroll.clientWidth)) }),
    itemAt: (/** @type {MouseEvent} */ pointer) => itemWith(model, at(pointer)),
  };
}

/**
 * The smallest of 1, 2, 5, 10, 20 … that is not less.
 * @param {number} least
 */
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-9)));
  for (const factor of [1, 2, 5]) if (factor * power >= least) return factor * power;
  return 10 * power;
}
