// The card of one tensor: what it is, what is in it in sensible words, its first numbers, a map or a picture of it.
import { h } from "./dom.js";
import { sparkline } from "./verdict.js";

const HIGHEST = 9;
const LEVELS = "0123456789abcdefghijklmnopqrstuvwxyz";
const CELL = 6;
const LEAST_POINTS = 3;
const MOST_POINTS = 200;

/**
 * What is in a value, and on demand what it looks like; "" where nothing was measured or kept.
 * @param {any} app
 * @param {number} value
 * @param {string} side whether the selected step takes or gives it, and as which of its values
 */
export function tensorCard(app, value, side = "", at = -1) {
  const { model } = app;
  const known = model.values.stats[value];
  const isBad = app.trail.values.has(value);
  const facts = factsOf(model, value);
  if (!known) return facts ? h("div", { class: "stats facts" }, facts) : "";
  const line = h("div", { class: "stats" + (isBad ? " bad" : "") }, bars(known), words(model.values.word[value], known).map((word) => h("span", {}, word)), history(app, side, at));
  const more = [
    facts ? h("p", { class: "facts" }, facts) : "",
    known.first ? h("p", {}, h("span", { class: "dim" }, "first "), h("code", {}, known.first.join("  ") + (known.first.length === 8 ? " …" : ""))) : "",
    known.map ? heatMap(known.map) : "",
    known.picture ? picture(known.picture) : "",
  ].filter(Boolean);
  if (!known.first) return h("div", {}, line, more);
  return h("div", {}, line, h("details", { class: "tensor" }, h("summary", {}, "what is in it"), more));
}

/**
 * How the value went over the rounds in which the selected step ran: of one number that, of others their size.
 * @param {any} app
 * @param {string} side
 * @param {number} at
 */
function history(app, side, at) {
  const { model, item, selected } = app;
  if (!side || !item || item.nodes.length < LEAST_POINTS || !item.nodes.includes(selected)) return "";
  const every = Math.ceil(item.nodes.length / MOST_POINTS);
  const nodes = item.nodes.filter((event, number) => number % every === 0 || event === selected);
  const points = nodes.map((event) => [event, sizeOf(model.values.stats[model.events[side][event][at]])]);
  if (points.filter(([, number]) => number !== undefined).length < LEAST_POINTS) return "";
  const line = sparkline(app, points.map(([event, number]) => [event, number === undefined ? null : number]), nodes.indexOf(selected));
  line.setAttribute("aria-label", `over ${item.nodes.length.toLocaleString("en")} rounds`);
  return line;
}

function sizeOf(known) {
  if (!known || known.mean === undefined) return known ? null : undefined;
  if (known.nan > 0 || known.inf > 0) return null;
  return known.min === known.max ? known.mean : Math.hypot(known.mean, known.std || 0);
}

function factsOf(model, value) {
  const size = model.values.sizes[model.values.word[value]];
  const bytes = size ? sizeWord(size[0]) : "";
  const device = model.values.device ? model.values.device[value] : "";
  return [bytes, device].filter(Boolean).join(" · ");
}

/**
 * Bytes as the terminal spells them: `512 B`, `1.5 kB`.
 * @param {number} bytes
 */
export function sizeWord(bytes) {
  if (bytes < 1000) return bytes + " B";
  for (const [unit, factor] of /** @type {[string, number][]} */ ([["kB", 1e3], ["MB", 1e6], ["GB", 1e9]])) {
    if (bytes / factor < 999.95) return (bytes / factor).toFixed(1) + " " + unit;
  }
  return (bytes / 1e12).toFixed(1) + " TB";
}

// ---------------------------------------------------------------- in words

/**
 * A scalar is one number; of what is all the same that is said; of the rest mean, deviation and ends.
 * @param {string} word
 * @param {any} known
 * @returns {string[]}
 */
function words(word, known) {
  const found = [];
  const isOne = /^[^[]*\[(1(, 1)*)?\]/.test(word);
  const isWhole = /^(i|u)\d+\[/.test(word);
  if (known.min !== undefined && known.min === known.max) found.push(isOne ? "= " + number(known.min) : "all " + number(known.min));
  else if (known.min !== undefined) {
    if (!isWhole && known.mean !== undefined) found.push("μ " + number(known.mean), "σ " + number(known.std));
    found.push(`${number(known.min)} … ${number(known.max)}`);
  }
  if (known.nan > 0) found.push(known.nan.toLocaleString("en") + " NaN");
  if (known.inf > 0) found.push(known.inf.toLocaleString("en") + " inf");
  if (known.zeros > 0 && !isOne && known.min !== known.max) found.push(known.zeros.toLocaleString("en") + " zeros");
  return found;
}

/** @param {number} each */
function number(each) {
  if (each !== 0 && (Math.abs(each) >= 1e5 || Math.abs(each) < 1e-3)) return each.toExponential(2);
  return String(Math.round(each * 1000) / 1000);
}

function bars(known) {
  if (!known.histogram) return "";
  const height = (bar) => Math.max(1, Math.round((18 * Number(bar)) / HIGHEST));
  return h("span", { class: "histogram" + (known.histogram.length < 24 ? " whole" : "") }, [...known.histogram].map((bar) => h("i", { style: `height:${height(bar)}px` })));
}

// ---------------------------------------------------------------- pictures

/** A matrix as cells: the lower a number, the lighter; what is not finite is red. */
function heatMap({ columns, cells, ends }) {
  const rows = cells.length / columns;
  const canvas = h("canvas", { class: "map", width: columns, height: rows, role: "img", "aria-label": `a map from ${ends[0]} to ${ends[1]}` });
  canvas.style.width = columns * CELL + "px";
  canvas.style.height = rows * CELL + "px";
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--cell").trim() || style.getPropertyValue("--accent").trim();
  [...cells].forEach((cell, at) => {
    const level = LEVELS.indexOf(cell);
    pen.globalAlpha = level < 0 ? 1 : 0.06 + (0.94 * level) / (LEVELS.length - 1);
    pen.fillStyle = level < 0 ? style.getPropertyValue("--red").trim() : ink;
    pen.fillRect(at % columns, Math.floor(at / columns), 1, 1);
  });
  return h("div", {}, canvas, h("span", { class: "dim" }, ` ${ends[0]} … ${ends[1]}`));
}

function picture({ width, rgb }) {
  const bytes = Uint8Array.from(atob(rgb), (letter) => letter.charCodeAt(0));
  const height = bytes.length / 3 / width;
  const canvas = h("canvas", { class: "map picture", width, height, role: "img", "aria-label": "as a picture, from the lowest number to the highest" });
  canvas.style.width = width * 3 + "px";
  canvas.style.height = height * 3 + "px";
  const pixels = new ImageData(width, height);
  for (let at = 0; at < width * height; at++) pixels.data.set([bytes[3 * at], bytes[3 * at + 1], bytes[3 * at + 2], 255], 4 * at);
  const pen = canvas.getContext("2d");
  if (pen) pen.putImageData(pixels, 0, 0);
  return canvas;
}
