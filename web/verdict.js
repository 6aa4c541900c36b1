// The card that the page opens with: what the answers say of the run, and the run in six lines. All of it comes from Python.
import { fill, h } from "./dom.js";

/** @typedef {{file: number, line: number, word: string, path: string}} Place */
/** @typedef {{kind: string, depth: number, event: number, cells: [string, string][], at: Place | null}} AnswerRow */
/** @typedef {{kind: string, severity: string, text: string, times: number, event: number, at: Place | null, rows: AnswerRow[]}} Finding */
/** @typedef {{label: string, parts: [string, number][], between: string, points: [number, number | null][]}} AboutLine */
/**
 * @typedef {object} Verdict
 * @property {"failure" | "bad" | "findings" | "fine"} kind
 * @property {string} text
 * @property {number} event
 * @property {AnswerRow[]} rows
 * @property {{text: string, event: number}[]} also
 * @property {Finding[]} findings
 * @property {string[]} missing
 * @property {AboutLine[]} about
 * @property {{title: string, columns: string[], rows: [number, number, string[], number[]][], below: string[]}[]} tables
 */

const MOST_FINDINGS = 5;
const SPARK_WIDTH = 150;
const SPARK_HEIGHT = 26;
const NAMES = { failure: "Why it failed", bad: "The first bad value", findings: "What looks wrong", fine: "The run" };

/**
 * The word on the tab that leads back to the card.
 * @param {Verdict} verdict
 */
export function verdictName(verdict) {
  return NAMES[verdict.kind];
}

/**
 * The whole card.
 * @param {any} app
 * @returns {Node[]}
 */
export function verdictCard(app) {
  const verdict = app.model.verdict;
  return [
    headline(app, verdict),
    verdict.also.map((each) => h("p", { class: "also" }, eventLink(app, each.event, each.text))),
    sections(app, verdict.rows),
    findings(app, verdict),
    about(app, verdict),
    tables(app, verdict),
  ];
}

/**
 * @param {any} app
 * @param {Verdict} verdict
 */
function headline(app, verdict) {
  const word = h("span", { class: "says" }, verdict.text);
  // Beside where two runs differ, what is said of the first of them is smaller.
  const heading = app.model.diff ? h("h3", {}, "run A: ", word) : h("h2", { class: "verdict is-" + verdict.kind }, word);
  if (verdict.event >= 0) {
    word.addEventListener("click", () => app.select(verdict.event));
    word.classList.add("leads");
  }
  return heading;
}

// ---------------------------------------------------------------- rows

/**
 * Rows under their headings; what does not fit comes first, what happened last can be opened.
 * @param {any} app
 * @param {AnswerRow[]} rows
 */
function sections(app, rows) {
  const found = [];
  for (const row of rows) {
    if (row.kind === "heading") found.push({ title: row.cells[0][1], rows: [] });
    else {
      if (!found.length) found.push({ title: "", rows: [] });
      found[found.length - 1].rows.push(row);
    }
  }
  const isFirst = (section) => section.rows.some((row) => row.kind === "mismatch");
  const ordered = [...found.filter(isFirst), ...found.filter((section) => !isFirst(section))];
  return ordered.map((section) => oneSection(app, section));
}

function oneSection(app, section) {
  const rows = section.rows.map((row) => answerRow(app, row));
  if (section.title.startsWith("the last ")) {
    return h("details", { class: "answers" }, h("summary", {}, section.title), rows);
  }
  const title = section.title ? h("h3", {}, section.title) : "";
  return h("section", { class: "answers" }, title, rows);
}

/**
 * One row of an answer, as the terminal prints it; a click goes to its event or its line.
 * @param {any} app
 * @param {AnswerRow} row
 */
export function answerRow(app, row) {
  const depth = row.kind === "made" ? row.depth + 1 : row.depth;
  // The error stands above: on each step of the way to it, it would only take room.
  const said = row.kind === "path" ? row.cells.filter(([kind]) => kind !== "error") : row.cells;
  const cells = said.map(([kind, text]) => cell(kind, text));
  const place = row.at ? placeLink(app, row.at, row.event) : "";
  const line = h("div", { class: "answer " + row.kind, style: `padding-left:${Math.min(depth, 12) * 12}px` }, h("span", { class: "words" }, cells), place);
  if (row.event >= 0) {
    line.classList.add("leads");
    line.setAttribute("data-event", String(row.event));
    line.addEventListener("click", () => app.select(row.event));
  }
  return line;
}

const CODE = new Set(["expression", "gives", "takes", "name", "source", "class"]);

function cell(kind, text) {
  if (CODE.has(kind)) return [h("code", { class: kind === "gives" ? "shape" : kind === "expression" ? "" : "dim" }, text), " "];
  return [h("span", { class: kind }, text), " "];
}

function placeLink(app, at, event) {
  const go = (click) => {
    click.preventDefault();
    click.stopPropagation();
    if (event >= 0) app.select(event);
    else app.showPlace(at.file, at.line);
  };
  return h("a", { class: "place", title: at.path, href: event >= 0 ? "#event=" + event : "#", onclick: go }, at.word);
}

/** A word that selects an event in all panes. */
export function eventLink(app, event, text) {
  if (event < 0) return h("span", {}, text);
  const go = (click) => {
    click.preventDefault();
    app.select(event);
  };
  return h("a", { href: "#event=" + event, "data-event": event, onclick: go }, text);
}

// ---------------------------------------------------------------- findings

/**
 * @param {any} app
 * @param {Verdict} verdict
 */
function findings(app, verdict) {
  if (!verdict.findings.length) return "";
  const title = verdict.kind === "findings" ? "" : h("h3", {}, "what looks wrong");
  const list = h("div", {});
  const show = (most) => {
    const left = verdict.findings.length - most;
    const more = left > 0 ? h("button", { class: "more", onclick: () => show(verdict.findings.length) }, `${left} more`) : "";
    fill(list, verdict.findings.slice(0, most).map((each, at) => finding(app, each, at, verdict.kind === "findings")), more);
  };
  show(app.finding < MOST_FINDINGS ? MOST_FINDINGS : verdict.findings.length);
  return h("section", { class: "answers" }, title, list);
}

function finding(app, each, number, isVerdict) {
  const isOpen = app.finding >= 0 ? number === app.finding : isVerdict && number === 0;
  const often = each.times > 1 ? h("span", { class: "often" }, "× " + each.times.toLocaleString("en")) : "";
  const place = each.at ? placeLink(app, each.at, each.event) : "";
  const heading = h("summary", {}, h("span", { class: "words" }, h("span", { class: "severity " + each.severity }, each.severity), " ", each.text, " ", often));
  const about = h("details", { class: "finding " + each.severity, "data-finding": each.kind, "data-number": number, open: isOpen }, heading, each.rows.map((row) => answerRow(app, row)));
  // The link stands beside the summary, not in it: what opens and closes may hold nothing else to press.
  return h("div", { class: "found" }, about, place);
}

// ---------------------------------------------------------------- the run

/**
 * @param {any} app
 * @param {Verdict} verdict
 */
function about(app, verdict) {
  if (!verdict.about.length) return "";
  const lines = verdict.about.map((line) => [
    h("dt", {}, line.label),
    h("dd", {}, parts(app, line), line.points.some(([, number]) => number !== null) ? sparkline(app, line.points) : ""),
  ]);
  const missing = verdict.missing.map((each) => h("p", { class: "note" }, "not judged: " + each));
  const title = verdict.kind === "fine" ? "" : h("h3", {}, "the run");
  return h("section", { class: "about" }, title, h("dl", {}, lines), missing);
}

/**
 * Tables that the terminal prints too; each row leads to a step.
 * @param {any} app
 * @param {Verdict} verdict
 */
function tables(app, verdict) {
  return verdict.tables.map((table) => {
    const head = h("tr", {}, table.columns.map((name) => h("th", { scope: "col" }, name)));
    const rows = table.rows.map(([depth, event, texts, alarms]) => h("tr", {}, texts.map((text, at) => {
      const style = at ? undefined : `padding-left:${Math.min(depth, 12) * 10}px`;
      return h("td", { style, class: alarms.includes(at) ? "error" : undefined }, at ? text : eventLink(app, event, text));
    })));
    return h("details", { class: "answers table" }, h("summary", {}, table.title),
      h("div", { class: "wide" }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))),
      table.below.map((text) => h("p", { class: "dim" }, text)));
  });
}

function parts(app, line) {
  return line.parts.map(([text, event], at) => [at ? line.between : "", eventLink(app, event, text)]);
}

/**
 * How a number went, as a small line; what was not finite is a red dot. A click goes to the step.
 * @param {any} app
 * @param {[number, number | null][]} points
 * @param {number} now the point that has a dot; else the last one
 */
export function sparkline(app, points, now = -1) {
  const SVG = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(SVG, "svg");
  const known = points.flatMap(([, number]) => (number === null ? [] : [number]));
  const low = Math.min(...known);
  const high = Math.max(...known);
  const x = (at) => 3 + (at / (points.length - 1)) * (SPARK_WIDTH - 6);
  const y = (number) => (high > low ? 3 + ((high - number) / (high - low)) * (SPARK_HEIGHT - 6) : SPARK_HEIGHT / 2);
  let path = "";
  points.forEach(([, number], at) => {
    const isJoined = at > 0 && points[at - 1][1] !== null;
    if (number !== null) path += `${isJoined ? "L" : "M"}${x(at).toFixed(1)},${y(number).toFixed(1)}`;
  });
  const add = (tag, properties) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(properties)) element.setAttribute(name, String(value));
    svg.append(element);
  };
  svg.setAttribute("class", "sparkline");
  svg.setAttribute("width", String(SPARK_WIDTH));
  svg.setAttribute("height", String(SPARK_HEIGHT));
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "how it changed");
  if (path) add("path", { d: path });
  points.forEach(([, number], at) => {
    if (number === null) add("circle", { class: "bad", cx: x(at).toFixed(1), cy: SPARK_HEIGHT - 3, r: 2 });
    else if (at === (now < 0 ? points.length - 1 : now)) add("circle", { cx: x(at).toFixed(1), cy: y(number).toFixed(1), r: 2.5 });
  });
  svg.addEventListener("click", (click) => {
    const box = svg.getBoundingClientRect();
    const at = Math.round(((click.clientX - box.left - 3) / (box.width - 6)) * (points.length - 1));
    app.select(points[Math.max(0, Math.min(points.length - 1, at))][0]);
  });
  return svg;
}
