// The code pane: the source with what each line gave beside it, the selected expression marked.
import { sampleOf } from "./data.js";
import { fill, h, safe } from "./dom.js";

const WORDS = new Set("and as assert async await break class continue def del elif else except finally for from global if import in is lambda None nonlocal not or pass raise return try while with yield True False self".split(" "));
const TOKEN = /(#.*)|("""|'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\b\d[\w.]*)|([A-Za-z_]\w*)/g;

export function makeCode(app, pane) {
  const choose = () => {
    showFile(Number(chooser.value));
    dim(app.found ? linesOf(app.found.events) : null);
  };
  const chooser = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "file", onchange: choose }));
  const path = h("span", { class: "dim path" }), steps = h("span", { class: "rounds" });
  const lines = h("div", { class: "lines", tabindex: 0 });
  pane.append(h("header", {}, chooser, path, h("span", { class: "grow" }), steps), lines);
  app.model.files.forEach((file, at) => chooser.append(h("option", { value: at }, file.name.split("/").pop())));
  if (!app.model.files.length) { chooser.remove(); fill(lines, h("p", { class: "nothing" }, "No source text was kept.")); }
  let shown = -1, rowOf = new Map(), marked = [];
  const known = new Map();

  function showFile(number) {
    if (number === shown || number < 0) return;
    const file = app.model.files[number];
    shown = number;
    chooser.value = String(number);
    path.textContent = file.name.includes("/") ? safe(file.name) : "";
    path.title = safe(file.path);
    if (!known.has(number)) known.set(number, fileRows(file));
    rowOf = known.get(number).rowOf;
    lines.replaceChildren(...known.get(number).rows);
  }
  function fileRows(file) {
    const rows = [];
    let last = 0;
    rowOf = new Map();
    for (const piece of file.pieces) {
      if (piece.first > last + 1) rows.push(h("div", { class: "skipped" }, `⋯ ${piece.first - last - 1} lines`));
      piece.lines.forEach((text, offset) => rows.push(codeRow(file, piece.first + offset, text)));
      last = piece.first + piece.lines.length - 1;
    }
    return { rows, rowOf };
  }
  // Text that is being marked, to be copied, is no click on its line.
  function pick(line) {
    const marked = getSelection();
    if (!marked || marked.isCollapsed) app.selectLine(shown, line);
  }
  function codeRow(file, line, text) {
    const margin = file.margins.get(line), isError = margin && margin.word.includes("✗");
    const source = h("code", { class: "source" }, coloured(text));
    const row = h("div", { class: "line" + (margin ? " ran" : "") + (margin && margin.isBad ? " bad" : "") + " " + app.diff.lineState(shown, line), "data-line": line, onclick: margin ? () => pick(line) : undefined },
      h("span", { class: "number" }, app.marks.ofLine(shown, line), line), h("span", { class: "times" }, margin && margin.times > 1 ? timesWord(margin.times) : ""), source, margin && h("code", { class: isError ? "error" : "shape" }, margin.alarm ? h("span", { class: margin.isBad ? "alarm bad" : "alarm" }, margin.alarm) : "", marginWords(margin.word)));
    rowOf.set(line, { row, source, text });
    return row;
  }
  // What was found, by file: its lines.
  function linesOf(events) {
    const found = new Map();
    for (const sample of new Set([...events].map((event) => sampleOf(app.model, event)))) {
      if (!sample.at || sample.at.file < 0) continue;
      if (!found.has(sample.at.file)) found.set(sample.at.file, new Set());
      for (let line = sample.at.line; line <= sample.at.endLine; line++) found.get(sample.at.file).add(line);
    }
    return found;
  }
  let isDimmed = false;
  function dim(hits) {
    if (!hits && !isDimmed) return;
    isDimmed = !!hits;
    const here = hits ? hits.get(shown) : null;
    for (const [line, { row }] of rowOf) row.classList.toggle("hit", !!here && here.has(line));
  }
  return {
    show(file, line) {
      showFile(file);
      const found = rowOf.get(line);
      if (found) lines.scrollTop = Math.max(0, found.row.offsetTop - lines.clientHeight / 3);
    },
    draw(isFollowed) {
      for (const { row, source, text } of marked) { row.classList.remove("selected", "failed"); fill(source, coloured(text)); }
      marked = [];
      const at = app.selected >= 0 ? sampleOf(app.model, app.selected).at : null;
      steps.replaceChildren(...app.lineButtons());
      const hits = app.found ? linesOf(app.found.events) : null;
      lines.classList.toggle("searched", !!hits && hits.size > 0);
      if (hits && hits.size && app.selected < 0) showFile([...hits.keys()][0]);
      dim(hits);
      if (!at || at.file < 0) { if (shown < 0 && app.model.files.length) showFile(0); return; }
      showFile(at.file);
      dim(hits);
      for (let line = at.line; line <= at.endLine; line++) {
        const found = rowOf.get(line);
        if (!found) continue;
        found.row.classList.add("selected");
        if (sampleOf(app.model, app.selected).error) found.row.classList.add("failed");
        marked.push(found);
        const from = line === at.line ? at.col : found.text.search(/\S|$/), to = line === at.endLine ? at.endCol : found.text.length;
        fill(found.source, coloured(found.text.slice(0, from)), h("mark", {}, coloured(found.text.slice(from, to))), coloured(found.text.slice(to)));
      }
      const first = rowOf.get(at.line);
      if (first && isFollowed) {
        const top = first.row.offsetTop;
        if (top < lines.scrollTop + 20 || top > lines.scrollTop + lines.clientHeight - 60) lines.scrollTop = Math.max(0, top - lines.clientHeight / 3);
      }
    },
  };
}

// What failed is marked apart from what the line gave before.
function marginWords(word) {
  const at = word.indexOf("✗");
  return at < 0 ? word : [word.slice(0, at), h("span", { class: "alarm bad" }, word.slice(at))];
}

// `938×`, `12k×`: it has room for five letters.
function timesWord(times) {
  if (times < 10_000) return times + "×";
  return times < 1e6 ? Math.floor(times / 1000) + "k×" : Math.floor(times / 1e6) + "M×";
}

export function coloured(text) {
  const found = [];
  let last = 0;
  for (const match of text.matchAll(TOKEN)) {
    const kind = match[1] ? "comment" : match[2] ? "string" : match[3] ? "digits" : WORDS.has(match[4]) ? "word" : "";
    if (!kind) continue;
    found.push(text.slice(last, match.index), h("span", { class: kind }, match[0]));
    last = match.index + match[0].length;
  }
  found.push(text.slice(last));
  return found;
}
