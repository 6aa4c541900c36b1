// Two runs on one page: run B's code beside run A's, green where they agree, red where they first differ.
import { coloured } from "./code.js";
import { sampleOf } from "./data.js";
import { fill, h } from "./dom.js";
import { eventLink } from "./verdict.js";

/** @typedef {{value: number, event: number, error: number | null, tolerance: number, agrees: boolean, file: number, line: number}} DiffRow */

const NONE = { build() {}, follow() {}, mark() {}, stateOf: () => "", lineState: () => "", showOther() {} };
const STATES = ["parts", "differs", "agrees"];

/**
 * What two runs add to the page; of one run nothing.
 * @param {any} app
 */
export function makeDiff(app) {
  const { model } = app;
  const { diff } = model;
  if (!diff) return NONE;
  const byValue = new Map(diff.rows.map((row) => [row.value, row]));
  const first = new Set(diff.first);
  /** By event the row of what was made last in it: views of one value are one row, so a layer's own output may have none. */
  const lastIn = new Map();
  for (const row of diff.rows) {
    for (let each = row.event; each >= 0; each = model.events.parent[each]) {
      if (!lastIn.has(each) || lastIn.get(each).event < row.event) lastIn.set(each, row);
    }
  }
  const firstIn = new Set();
  for (const event of first) for (let each = event; each >= 0; each = model.events.parent[each]) firstIn.add(each);
  const ofLines = lineStates("a", (row) => placeOfEvent(row.event));
  /** @type {any} */
  let other = null;

  /** Of what an event gave: "parts" where the runs part, "differs", "agrees", or "" where nothing is known. */
  function stateOfEvent(event) {
    if (event < 0) return "";
    if (firstIn.has(event)) return "parts";
    const rows = rowsOf(event);
    if (!rows.length) return "";
    return rows.every((row) => row.agrees) ? "agrees" : "differs";
  }

  function rowsOf(event) {
    const rows = model.events.gives[event].map((value) => byValue.get(value)).filter(Boolean);
    return rows.length || !lastIn.has(event) ? rows : [lastIn.get(event)];
  }

  function stateOf(item) {
    if (item.nodes.length) return stateOfEvent(app.eventOf(item));
    const states = new Set(item.children.map(stateOf));
    return STATES.find((state) => states.has(state)) || "";
  }

  function mark(element, mark) {
    if (mark.item === undefined || mark.toggle !== undefined) return;
    const state = stateOf(model.items[mark.item]);
    for (const name of STATES) element.classList.toggle(name, state === name);
  }

  // The second column of code, and green and red beside the lines of both.
  function build(body, code) {
    body.classList.add("two-runs");
    const pane = h("div", { class: "pane code other", "data-pane": "other" });
    const both = h("div", { class: "codes" });
    code.replaceWith(both);
    both.append(code, pane);
    code.querySelector("header").prepend(h("span", { class: "run" }, "A"));
    other = otherCode(app, pane, lineStates("b", (row) => (row.file >= 0 ? row.file + ":" + row.line : "")));
    showFirst();
  }

  function placeOfEvent(event) {
    const at = event >= 0 ? sampleOf(model, event).at : null;
    return at && at.file >= 0 ? at.file + ":" + at.line : "";
  }

  /** By file and line whether what was made there agrees. */
  function lineStates(side, placeOf) {
    const found = new Map();
    for (const row of diff.rows) {
      const place = placeOf(row);
      if (!place) continue;
      if (!row.agrees || !found.has(place)) found.set(place, row.agrees ? "agrees" : "differs");
    }
    for (const section of diff.sections.slice(0, 1)) {
      for (const row of section.rows) {
        const at = row.kind === side ? row.at : side === "b" && row.kind === "a" ? row.other : null;
        if (at) found.set(at.file + ":" + at.line, "parts");
      }
    }
    return found;
  }

  /** Show the line of B that stands for an event of A. */
  function follow(event) {
    if (!other) return;
    const change = diff.sections.flatMap((section) => section.rows).find((row) => row.other && row.event === event);
    if (change) {
      other.show(change.other.file, change.other.line);
      return;
    }
    if (first.has(event)) {
      showFirst();
      return;
    }
    const row = rowsOf(event).find((each) => each.file >= 0);
    if (row) other.show(row.file, row.line);
  }

  function showFirst() {
    const rows = diff.sections.flatMap((section) => section.rows);
    const row = rows.find((each) => each.kind === "b" && each.at && each.at.file >= 0);
    if (row) other.show(row.at.file, row.at.line);
  }

  return { build, follow, mark, stateOf, lineState: (file, line) => ofLines.get(file + ":" + line) || "", showOther: (file, line) => other.show(file, line) };
}

// ---------------------------------------------------------------- B's code

function otherCode(app, pane, states) {
  const { files, name } = app.model.diff;
  const choose = () => showFile(Number(chooser.value));
  const chooser = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "file of B", onchange: choose }));
  const lines = h("div", { class: "lines", tabindex: 0 });
  pane.append(h("header", {}, h("span", { class: "run" }, "B"), files.length ? chooser : h("span", { class: "dim" }, name)), lines);
  files.forEach((file, at) => chooser.append(h("option", { value: at }, file.name.split("/").pop())));
  if (!files.length) fill(lines, h("p", { class: "nothing" }, "No source text of B was kept."));
  let shown = -1;
  let rows = new Map();
  /** @type {any} */
  let selected = null;

  function showFile(number) {
    if (number === shown || number < 0 || number >= files.length) return;
    shown = number;
    chooser.value = String(number);
    rows = new Map();
    const made = [];
    let last = 0;
    for (const piece of files[number].pieces) {
      if (piece.first > last + 1) made.push(h("div", { class: "skipped" }, `⋯ ${piece.first - last - 1} lines`));
      piece.lines.forEach((text, offset) => made.push(oneLine(number, piece.first + offset, text)));
      last = piece.first + piece.lines.length - 1;
    }
    lines.replaceChildren(...made);
  }

  function oneLine(number, line, text) {
    const margin = files[number].margins.get(line);
    const state = states.get(number + ":" + line) || "";
    const row = h("div", { class: `line ${margin ? "ran" : ""} ${state}`, "data-line": line },
      h("span", { class: "number" }, line), h("span", { class: "times" }, margin && margin.times > 1 ? margin.times + "×" : ""),
      h("code", { class: "source" }, coloured(text)), margin && h("code", { class: "shape" }, margin.word));
    rows.set(line, row);
    return row;
  }

  function show(file, line) {
    showFile(file);
    if (selected) selected.classList.remove("selected");
    selected = rows.get(line) || null;
    if (!selected) return;
    selected.classList.add("selected");
    const top = selected.offsetTop;
    if (top < lines.scrollTop + 20 || top > lines.scrollTop + lines.clientHeight - 60) lines.scrollTop = Math.max(0, top - lines.clientHeight / 3);
  }

  showFile(0);
  return { show };
}

// ---------------------------------------------------------------- card

/**
 * Where the runs differ, as the terminal prints it, and how the error grows; "" of one run.
 * @param {any} app
 */
export function diffCard(app) {
  const { diff } = app.model;
  if (!diff) return "";
  return h("section", { class: "answers diff" },
    h("h2", { class: "verdict is-" + diff.verdict }, diff.text),
    diff.sections.map((section) => [section.title ? h("h3", {}, section.title) : "", h("div", { class: "two" }, section.rows.map((row) => diffRow(app, row)))]),
    diff.summary ? h("p", { class: "dim" }, diff.summary) : "",
    growth(app, diff.rows),
    diff.notes.map((note) => h("p", { class: "note" }, "note: " + note)));
}

function diffRow(app, row) {
  const words = row.event >= 0 ? eventLink(app, row.event, row.text) : row.text;
  const depth = row.depth ? `padding-left:${Math.min(row.depth, 12) * 14}px` : undefined;
  const isCode = row.kind === "a" || row.kind === "b";
  return [
    h("span", { class: "label " + row.kind }, row.label),
    h("span", { class: "words " + row.kind, style: depth }, row.module ? h("span", { class: "module" }, row.module) : "", isCode ? h("code", {}, words) : words),
    row.at ? h("a", { class: "place", title: row.at.path, href: "#", onclick: (click) => go(app, click, row) }, row.at.word) : h("span", {}),
  ];
}

function go(app, click, row) {
  click.preventDefault();
  if (row.kind === "b") app.diff.showOther(row.at.file, row.at.line);
  else if (row.event >= 0) app.select(row.event);
}

const WIDTH = 460;
const HEIGHT = 110;
const LOWEST = 1e-9;
const LEFT = 42;

/**
 * How far apart the values are along the run, on a logarithmic scale, and what roundings alone would allow.
 * @param {any} app
 * @param {DiffRow[]} rows
 */
function growth(app, rows) {
  const known = rows.filter((row) => row.error !== null && row.event >= 0).sort((a, b) => a.event - b.event);
  if (known.length < 3) return "";
  const highest = Math.max(1e-6, ...known.map((row) => row.error || 0));
  const power = (number) => Math.log10(Math.max(LOWEST, number));
  const x = (at) => LEFT + (at / (known.length - 1)) * (WIDTH - LEFT - 8);
  const y = (number) => 8 + ((power(highest) - power(number)) / (power(highest) - power(LOWEST))) * (HEIGHT - 26);
  const svg = element("svg", { class: "growth", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "how the error grows along the run" });
  for (let each = Math.ceil(power(LOWEST)); each <= power(highest); each += 3) {
    svg.append(element("path", { class: "axis", d: `M${LEFT},${y(10 ** each)}H${WIDTH - 8}` }));
    svg.append(word(4, y(10 ** each) + 3, each === Math.ceil(power(LOWEST)) ? "equal" : "1e" + each));
  }
  svg.append(element("path", { class: "allowed", d: known.map((row, at) => `${at ? "L" : "M"}${x(at).toFixed(1)},${y(row.tolerance).toFixed(1)}`).join("") }));
  known.forEach((row, at) => svg.append(element("circle", { class: row.agrees ? "agrees" : "differs", cx: x(at).toFixed(1), cy: y(row.error).toFixed(1), r: 2.6 })));
  svg.append(word(LEFT, HEIGHT - 3, "error of each value, in the order of the run; dashed: what roundings allow"));
  svg.addEventListener("click", (click) => {
    const box = svg.getBoundingClientRect();
    const at = Math.round((((click.clientX - box.left) / box.width) * WIDTH - LEFT) / ((WIDTH - LEFT - 8) / (known.length - 1)));
    app.select(known[Math.max(0, Math.min(known.length - 1, at))].event);
  });
  return svg;
}

function word(x, y, text) {
  const found = element("text", { x, y });
  found.textContent = text;
  return found;
}

function element(tag, properties) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) found.setAttribute(name, String(value));
  return found;
}
