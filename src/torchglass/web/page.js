// Built from web/ by `make page`. Do not edit.
const in_dom = (() => {

const SVG = "http://www.w3.org/2000/svg";

function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(safe(String(child))));
  }
}

function fill(element, ...children) {
  element.replaceChildren();
  put(element, children);
}
function safe(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (letter) => "\\u" + letter.codePointAt(0).toString(16).padStart(4, "0"));
}

function svgElement(mark) {
  const tag = mark.t, element = document.createElementNS(SVG, tag), set = (name, value) => element.setAttribute(name, value);
  set("class", mark.c);
  if (tag === "rect") { set("x", mark.x); set("y", mark.y); set("width", mark.w); set("height", mark.h); set("rx", mark.r); }
  else if (tag === "circle") { set("cx", mark.x); set("cy", mark.y); set("r", mark.r); }
  else if (tag === "path") { set("d", mark.d); if (mark.arrow) set("marker-end", "url(#arrow)"); }
  else { set("x", mark.x); set("y", mark.y); if (mark.anchor) set("text-anchor", mark.anchor); element.textContent = safe(mark.s); }
  if (mark.item !== undefined) set("data-item", mark.item);
  if (mark.toggle !== undefined) set("data-toggle", mark.toggle);
  return element;
}

function duration(ticks, tick) {
  if (ticks < 0) return "—";
  const ns = ticks * tick;
  for (const [unit, size] of [["ns", 1], ["µs", 1e3], ["ms", 1e6]]) if (ns / size < 999.5) return three(ns / size) + " " + unit;
  return three(ns / 1e9) + " s";
}

function three(number) {
  return number >= 99.95 ? number.toFixed(0) : number >= 9.995 ? number.toFixed(1) : number.toFixed(2);
}

function count(number) {
  return number.toLocaleString("en");
}
return { h, put, fill, safe, svgElement, duration, count };
})();
const in_code = (() => {
const { sampleOf } = in_data;
const { fill, h, safe } = in_dom;

const WORDS = new Set("and as assert async await break class continue def del elif else except finally for from global if import in is lambda None nonlocal not or pass raise return try while with yield True False self".split(" "));
const TOKEN = /(#.*)|("""|'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\b\d[\w.]*)|([A-Za-z_]\w*)/g;

function makeCode(app, pane) {
  const chooser = h("select", { "aria-label": "file", onchange: () => { showFile(Number(chooser.value)); dim(app.found ? linesOf(app.found.events) : null); } });
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
    chooser.value = number;
    path.textContent = safe(file.name);
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
  function codeRow(file, line, text) {
    const margin = file.margins.get(line), isError = margin && margin.word.includes("✗");
    const source = h("code", { class: "source" }, coloured(text));
    const row = h("div", { class: "line" + (margin ? " ran" : ""), "data-line": line, onclick: margin ? () => app.selectLine(shown, line) : undefined },
      h("span", { class: "number" }, line), h("span", { class: "times" }, margin && margin.times > 1 ? margin.times + "×" : ""), source, margin && h("code", { class: isError ? "error" : "shape" }, margin.word));
    rowOf.set(line, { row, source, text });
    return row;
  }
  function linesOf(events) {
    const found = new Map();
    for (const sample of new Set([...events].map((event) => sampleOf(app.model, event)))) {
      if (!sample.at || sample.at.file < 0) continue;
      if (!found.has(sample.at.file)) found.set(sample.at.file, new Set());
      for (let line = sample.at.line; line <= sample.at.endLine; line++) found.get(sample.at.file).add(line);
    }
    return found;
  }
  function dim(hits) {
    const here = hits ? hits.get(shown) : null;
    for (const [line, { row }] of rowOf) row.classList.toggle("hit", !!here && here.has(line));
  }
  return {
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

function coloured(text) {
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
return { makeCode, coloured };
})();
const in_steps = (() => {
const { sampleOf } = in_data;
const { fill, h } = in_dom;

const ROW = 23;

function stepRows(app) {
  const rows = [], { model, open, found } = app;
  const walk = (items, depth) => {
    for (const item of items) {
      if (found && !found.items.has(item.number)) continue;
      rows.push({ item, depth });
      if (item.children.length && (open.has(item.number) || (found && found.around.has(item.number)))) walk(item.children, depth + 1);
    }
  };
  walk(model.top.filter((item) => app.shows(item)), 0);
  return rows;
}

function makeSteps(app, pane) {
  const space = h("div", { class: "space" }), list = h("div", { class: "rows", tabindex: 0, role: "tree", "aria-label": "steps" }, space);
  const title = h("span", { class: "dim" });
  pane.append(h("header", {}, h("b", {}, "Steps"), title, h("span", { class: "grow" }),
    h("button", { title: "open all levels", onclick: () => app.openAll() }, "⊞"), h("button", { title: "close all", onclick: () => app.closeAll() }, "⊟")), list);
  let rows = [];
  const paint = () => {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 8), last = Math.min(rows.length, first + Math.ceil((list.clientHeight || 800) / ROW) + 16);
    space.style.height = rows.length * ROW + "px";
    fill(space, rows.slice(first, last).map((row, at) => stepRow(app, row, first + at)));
    if (!rows.length) fill(space, h("p", { class: "nothing" }, app.found ? "Nothing matches." : app.emptyWord()));
  };
  list.addEventListener("scroll", paint);
  new ResizeObserver(paint).observe(list);
  return {
    rows: () => rows,
    draw(isFollowed) {
      rows = stepRows(app);
      const { model, found } = app;
      title.textContent = `${rows.length.toLocaleString("en")} rows` + (found ? ` · ${found.count.toLocaleString("en")} found` : ` of ${model.events.size.toLocaleString("en")} events`);
      if (isFollowed) {
        const at = rows.findIndex((row) => row.item === app.item);
        const top = at * ROW, height = list.clientHeight || 400;
        if (at >= 0 && (top < list.scrollTop + ROW || top > list.scrollTop + height - 2 * ROW)) list.scrollTop = Math.max(0, top - height / 3);
      }
      paint();
    },
  };
}

function stepRow(app, { item, depth }, at) {
  const { model } = app, event = app.eventOf(item), sample = event >= 0 ? sampleOf(model, event) : null;
  const near = app.near.get(item.number), isFailed = model.failing.has(item.number);
  const classes = ["row", item === app.item ? "selected" : near || "", isFailed ? "failed" : "", app.found && !app.found.hits.has(item.number) ? "faint" : ""].join(" ");
  const chevron = h("i", { class: "chevron" + (item.children.length ? (app.open.has(item.number) ? " open" : " closed") : "") , onclick: (click) => { click.stopPropagation(); app.toggle(item); } });
  const isLayer = sample && sample.kind === "module";
  const name = isLayer || item.kind === "repeat" ? [h("b", {}, item.title || "repeat"), h("span", { class: "dim" }, item.detail)] : [h("code", {}, item.code || item.title)];
  const gives = isFailed && sample && sample.error ? h("span", { class: "error" }, "✗ " + sample.error.split(":")[0]) : h("code", { class: "shape" }, item.gives);
  return h("div", { class: classes, role: "treeitem", "data-item": item.number, "aria-selected": item === app.item ? "true" : undefined,
    style: `top:${at * ROW}px;padding-left:${10 + Math.min(depth, 30) * 14}px`, onclick: () => app.select(event >= 0 ? event : app.firstInside(item)), ondblclick: () => app.toggle(item) },
    chevron, h("i", { class: "dot " + item.hue }), h("span", { class: "label" }, name), item.often && h("span", { class: "often" }, item.often), item.only && h("span", { class: "only" }, item.only), gives);
}
return { stepRows, makeSteps };
})();
const in_flow = (() => {
const { scene } = in_graph;
const { h, svgElement } = in_dom;
const { svg } = in_picture;

const MOST_SEEN = 400, READABLE = 0.7;

function makeFlow(app, pane) {
  const title = h("span", { class: "dim" });
  const button = (text, name, action) => h("button", { title: name, onclick: action }, text);
  const root = document.createElementNS("http://www.w3.org/2000/svg", "svg"), sheet = document.createElementNS("http://www.w3.org/2000/svg", "g");
  root.setAttribute("class", "sheet");
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", "data flow");
  root.append(arrows(), sheet);
  const rounds = h("span", { class: "rounds" });
  pane.append(h("header", {}, h("b", {}, "Data flow"), title, h("span", { class: "grow" }), rounds, button("+", "larger", () => zoom(1.25)), button("−", "smaller", () => zoom(0.8)),
    button("fit", "all of it", () => fit(true)), button("svg", "save as a picture", () => app.save("svg", svg(drawn)))), root);
  let drawn = null, at = { x: 20, y: 20, k: 1 }, elements = [], wasMoved = false;

  const move = () => { sheet.setAttribute("transform", `translate(${at.x},${at.y}) scale(${at.k})`); cull(); };
  const size = () => ({ w: root.clientWidth || 600, h: root.clientHeight || 600 });
  function zoom(factor, x = size().w / 2, y = size().h / 2) {
    const k = Math.min(4, Math.max(0.02, at.k * factor));
    at = { k, x: x - ((x - at.x) * k) / at.k, y: y - ((y - at.y) * k) / at.k };
    wasMoved = true;
    move();
  }
  function fit(isAll) {
    const { w, h: height } = size(), k = Math.min(1, (w - 48) / drawn.w, isAll ? (height - 48) / drawn.h : 1);
    at = { k: Math.max(k, isAll ? 0.02 : 0.45), x: 0, y: 24 };
    at.x = Math.max((w - drawn.w * at.k) / 2, 24);
    wasMoved = isAll;
    move();
  }
  function cull() {
    if (!drawn || drawn.marks.length < MOST_SEEN * 6) return;
    const { w, h: height } = size(), left = -at.x / at.k - 400, top = -at.y / at.k - 400, right = left + w / at.k + 800, bottom = top + height / at.k + 800;
    elements.forEach((element, number) => {
      const mark = drawn.marks[number], x = mark.x === undefined ? null : mark.x;
      const isSeen = x === null || (x < right && mark.y < bottom && x + (mark.w || 200) > left && mark.y + (mark.h || 20) > top);
      element.style.display = isSeen ? "" : "none";
    });
  }
  wheelAndDrag(root, () => at, (x, y) => { at = { ...at, x, y }; wasMoved = true; move(); }, zoom);
  root.addEventListener("click", (click) => {
    const toggle = click.target.getAttribute("data-toggle"), item = click.target.getAttribute("data-item");
    if (toggle !== null) app.toggle(app.model.items[toggle]);
    else if (item !== null) { const there = app.model.items[item], event = app.eventOf(there); app.select(event >= 0 ? event : app.firstInside(there)); }
  });
  root.addEventListener("dblclick", (click) => {
    const item = click.target.getAttribute("data-item");
    if (item !== null) app.toggle(app.model.items[item]);
  });

  return {
    zoom, fit: () => fit(true),
    drawn: () => drawn,
    draw() {
      drawn = scene(app.model, { model: app.model, open: app.open, shows: app.shows });
      title.textContent = `${drawn.boxes.toLocaleString("en")} boxes`;
      elements = drawn.marks.map(svgElement);
      sheet.replaceChildren(...elements);
      if (!wasMoved) fit(false); else move();
      this.light();
    },
    light(isFollowed) {
      const selected = app.item ? app.item.number : -1, { found } = app;
      elements.forEach((element, number) => {
        const mark = drawn.marks[number];
        if (mark.from !== undefined) element.classList.toggle("lit", selected >= 0 && mark.from !== mark.to && (mark.from === selected || mark.to === selected));
        if (mark.of !== undefined) element.classList.toggle("faint", !!found && !found.items.has(mark.of));
        if (mark.item === undefined) return;
        element.classList.toggle("selected", mark.item === selected && !mark.c.startsWith("head"));
        element.classList.toggle("near", app.near.has(mark.item) && !mark.c.startsWith("head"));
        element.classList.toggle("faint", !!found && !found.items.has(mark.item));
      });
      rounds.replaceChildren(...app.roundButtons());
      if (isFollowed) show(selected);
    },
  };
  function show(selected) {
    const number = drawn.marks.findIndex((each) => each.item === selected && (each.c.startsWith("box") || each.c.startsWith("group")));
    if (number < 0) return;
    const mark = drawn.marks[number], { w, h: height } = size(), isCircle = mark.t === "circle";
    const isSmall = at.k < READABLE && !wasMoved; // a sheet that was made to fit is too small to read one box on it
    if (isSmall) at.k = 1;
    const x = (isCircle ? mark.x : mark.x + mark.w / 2) * at.k + at.x, y = (isCircle ? mark.y : mark.y + Math.min(mark.h / 2, 60)) * at.k + at.y;
    if (isSmall || x < 40 || x > w - 40) at.x += w / 2 - x;
    if (y < 40 || y > height - 60) at.y += height / 3 - y;
    move();
  }
}

function arrows() {
  const defs = document.createElementNS("http://www.w3.org/2000/svg", "defs"), marker = document.createElementNS("http://www.w3.org/2000/svg", "marker");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const all = { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" };
  for (const [name, value] of Object.entries(all)) marker.setAttribute(name, value);
  shape.setAttribute("d", "M1,1L7,4L1,7");
  shape.setAttribute("class", "arrow");
  marker.append(shape);
  defs.append(marker);
  return defs;
}

function wheelAndDrag(root, now, moveTo, zoom) {
  let from = null;
  root.addEventListener("wheel", (wheel) => {
    wheel.preventDefault();
    const box = root.getBoundingClientRect();
    if (wheel.ctrlKey || wheel.metaKey) zoom(Math.exp(-wheel.deltaY / 300), wheel.clientX - box.left, wheel.clientY - box.top);
    else moveTo(now().x - wheel.deltaX, now().y - wheel.deltaY);
  }, { passive: false });
  root.addEventListener("pointerdown", (down) => { if (down.button === 0) from = { x: down.clientX - now().x, y: down.clientY - now().y, isMoved: false, sx: down.clientX, sy: down.clientY, id: down.pointerId }; });
  root.addEventListener("pointermove", (move) => {
    if (!from) return;
    if (!from.isMoved && Math.hypot(move.clientX - from.sx, move.clientY - from.sy) < 4) return;
    if (!from.isMoved) { from.isMoved = true; root.setPointerCapture(from.id); }
    moveTo(move.clientX - from.x, move.clientY - from.y);
  });
  const end = () => { from = null; };
  root.addEventListener("pointerup", end);
  root.addEventListener("pointercancel", end);
}
return { makeFlow };
})();
const in_details = (() => {
const { itemWith, sampleOf, seenFrom, shownEvent, sourceValue } = in_data;
const { count, duration, fill, h } = in_dom;

const MOST = 4;

function makeDetails(app, pane) {
  const title = h("span", { class: "dim" }), rounds = h("span", { class: "rounds" }), body = h("div", { class: "body" });
  pane.append(h("header", {}, h("b", {}, "Details"), title, h("span", { class: "grow" }), rounds), body);
  return {
    draw() {
      const { model, selected } = app;
      if (selected < 0) { title.textContent = ""; fill(body, notes(model), h("p", { class: "nothing" }, "Select a step, a box or a line.")); return; }
      const sample = sampleOf(model, selected);
      title.textContent = "#" + selected;
      rounds.replaceChildren(...app.roundButtons());
      body.scrollTop = 0;
      fill(body, path(app), headline(app, sample), takes(app, sample), gives(app, sample), time(app), stack(app, sample), life(app, sample), notes(model));
    },
  };
}

function notes(model) {
  return model.run.notes.map((note) => h("p", { class: "note" }, "note: " + note));
}

function path(app) {
  const around = [];
  let item = app.item ? app.model.items[app.item.parent] : null;
  if (app.item && app.model.itemOf.get(app.selected) !== app.item) item = app.item;
  for (; item; item = app.model.items[item.parent]) around.unshift(item);
  return h("p", { class: "path" }, around.map((each) => [h("a", { onclick: () => app.select(app.eventOf(each) >= 0 ? app.eventOf(each) : app.firstInside(each)) }, each.title || "repeat"), " › "]));
}

function headline(app, sample) {
  const item = app.model.itemOf.get(app.selected), at = sample.at;
  return [
    h("h2", {}, h("i", { class: "dot " + (item ? item.hue : "") }), h("code", {}, sample.code || sample.name)),
    h("p", {}, h("span", { class: "tag" }, sample.kind), " ", sample.kind === "module" ? sample.detail : sample.name, sample.module && sample.kind !== "module" ? h("span", { class: "dim" }, "  in " + sample.module) : "", sample.phase === "backward" ? h("span", { class: "dim" }, "  backward") : ""),
    item && item.only && h("p", { class: "dim" }, item.only),
    sample.error && h("p", { class: "error" }, "✗ " + sample.error),
    sample.note && h("p", { class: "note" }, sample.note),
    at && h("p", {}, place(app, at, app.selected), h("span", { class: "dim" }, " in " + at.function)),
  ];
}

function place(app, at, event) {
  const file = at.file >= 0 ? app.model.files[at.file].name : at.path;
  return h("a", { onclick: () => app.select(event) }, `${file.split("/").pop()}:${at.line}`);
}

function takes(app, sample) {
  const { model, selected } = app, ids = model.events.takes[selected];
  return section("takes", ids.length ? ids.map((value, at) => {
    const source = sourceValue(model, selected, at), isParameter = model.values.parameters.has(value), operand = sample.operands[at] || "";
    const maker = model.values.maker[source];
    return line(sample.roles[at], [h("code", { class: "shape" }, model.values.word[value]), " ", isParameter ? h("span", { class: "tag" }, "parameter") : "", " ", operand !== sample.roles[at] ? h("code", { class: "dim" }, operand) : "",
      !isParameter && maker >= 0 && maker !== selected ? h("div", {}, h("span", { class: "dim" }, "from "), step(app, seen(app, maker))) : "", stats(model, value)]);
  }) : sample.args && sample.args !== "()" ? h("code", { class: "dim" }, sample.args) : h("span", { class: "dim" }, "nothing"));
}

function gives(app, sample) {
  const { model, selected } = app, ids = model.events.gives[selected];
  if (sample.error) return section("gives", h("span", { class: "dim" }, "nothing: it failed"));
  return section("gives", ids.length ? ids.map((value, at) => {
    const readers = [...new Set((model.readers.get(value) || []).filter((event) => event > selected && !inside(model, event, selected)).map((event) => seen(app, event)))];
    const name = sample.target.length === ids.length ? sample.target[at] : at === 0 && sample.target.length === 1 ? sample.target[0] : "";
    return line(sample.results[at], [h("code", { class: "shape" }, model.values.word[value]), " ", h("code", { class: "dim" }, name),
      readers.length ? h("div", {}, h("span", { class: "dim" }, "to "), readers.slice(0, MOST).map((event) => step(app, event)), readers.length > MOST ? h("span", { class: "dim" }, ` +${readers.length - MOST} more`) : "") : "", stats(model, value)]);
  }) : h("code", { class: "dim" }, sample.result && sample.result !== "None" ? sample.result : "nothing"));
}

function inside(model, event, around) {
  while (event > around) event = model.events.parent[event];
  return event === around;
}
function seen(app, event) {
  const found = seenFrom(app.model, event, app.selected);
  return found < 0 ? event : found;
}

function step(app, event) {
  const shown = shownEvent(app.model, event), sample = sampleOf(app.model, shown >= 0 ? shown : event), item = itemWith(app.model, event);
  const name = sample.kind === "module" ? (item ? item.title : sample.name) : sample.code || sample.name;
  return h("a", { class: "step", title: name, onclick: () => app.select(shown >= 0 ? shown : event) }, h("i", { class: "dot " + (item ? item.hue : "") }), sample.kind === "module" ? name : h("code", {}, name));
}

function section(name, ...content) {
  return h("section", {}, h("h3", {}, name), content);
}

function line(role, content) {
  return h("div", { class: "value" }, h("span", { class: "role" }, role || "—"), h("div", {}, content));
}
function stats(model, value) {
  const known = model.values.stats[value];
  if (!known) return "";
  const number = (each) => (typeof each === "number" ? (Math.abs(each) >= 1e5 || (each && Math.abs(each) < 1e-3) ? each.toExponential(2) : String(Math.round(each * 1000) / 1000)) : String(each));
  const words = [["mean", "μ"], ["std", "σ"], ["nan", "NaN"], ["inf", "inf"], ["zeros", "zeros"]].filter(([name]) => known[name] !== undefined && (name === "mean" || name === "std" || known[name] > 0)).map(([name, sign]) => h("span", {}, `${sign} ${number(known[name])}`));
  const range = known.min !== undefined && known.max !== undefined ? h("span", {}, `${number(known.min)} … ${number(known.max)}`) : "";
  const bars = known.histogram ? [...known.histogram].map(Number) : null, most = 9;
  return h("div", { class: "stats" + (known.nan || known.inf ? " bad" : "") }, bars ? h("span", { class: "histogram" }, bars.map((bar) => h("i", { style: `height:${Math.max(1, Math.round((18 * bar) / most))}px` }))) : "", words, range);
}

function time(app) {
  const { model, selected } = app, spent = model.events.spent[selected], parent = model.events.parent[selected];
  const whole = parent >= 0 ? model.events.spent[parent] : -1, part = whole > 0 && spent >= 0 ? spent / whole : null;
  let inner = 0;
  for (let event = selected + 1; event < model.events.size && model.events.parent[event] >= selected; event++) inner++;
  return section("time", h("p", {}, h("b", {}, duration(spent, model.tick)), h("span", { class: "dim" }, " host time "), part !== null ? [h("span", { class: "bar" }, h("i", { style: `width:${(100 * part).toFixed(1)}%` })), h("span", { class: "dim" }, ` ${(100 * part).toFixed(1)} % of ${sampleOf(model, parent).module || sampleOf(model, parent).name}`)] : ""),
    inner ? h("p", { class: "dim" }, `${count(inner)} events inside`) : "");
}

function stack(app, sample) {
  if (sample.stack.length < 2) return "";
  return section("stack", sample.stack.slice().reverse().map((at) => h("div", { class: "frame" }, h("code", {}, `${(at.file >= 0 ? app.model.files[at.file].name : at.path).split("/").pop()}:${at.line}`), " ", h("span", { class: "dim" }, at.function))));
}
function life(app, sample) {
  const { model } = app, name = sample.target[0] || (sample.kind === "variable" ? sample.name : "");
  if (!name || !sample.at) return "";
  const isMeant = model.samples.map((each) => !!each.at && each.at.function === sample.at.function && each.at.file === sample.at.file && (each.target.includes(name) || (each.kind === "variable" && each.name === name)));
  const seen = new Set(), rows = [];
  for (let event = 0; event < model.events.size && rows.length < 40; event++) {
    const number = model.events.sample[event];
    if (!isMeant[number] || seen.has(number)) continue;
    seen.add(number);
    const each = model.samples[number], value = model.events.gives[event][Math.max(0, each.target.indexOf(name))];
    rows.push(h("div", { class: "frame" }, h("a", { onclick: () => app.select(event) }, ":" + each.at.line), " ", h("code", {}, each.code), " ", h("code", { class: "shape" }, value === undefined ? "" : model.values.word[value])));
  }
  return rows.length > 1 ? section(`life of ${name}`, rows) : "";
}
return { makeDetails };
})();
const in_timeline = (() => {
const { sampleOf, shownEvent } = in_data;
const { duration, fill, h, safe } = in_dom;

const ROW = 15, MOST_LEVELS = 12;

function makeTimeline(app, pane) {
  const { model } = app, title = h("span", { class: "dim" }), canvas = h("canvas", { tabindex: 0, "aria-label": "timeline" });
  const view = { from: 0, to: 1 };
  pane.append(h("header", {}, h("b", {}, "Time"), title, h("span", { class: "grow" }), h("button", { onclick: () => { Object.assign(view, { from: 0, to: total }); paint(); } }, "all")), h("div", { class: "scroll" }, canvas));
  let total = 1, lanes = null;

  function prepare() {
    const threads = new Map(), depth = new Int32Array(model.events.size);
    for (let event = 0; event < model.events.size; event++) {
      const sample = sampleOf(model, event), key = sample.process + " " + sample.thread, parent = model.events.parent[event];
      const isSame = parent >= 0 && sampleOf(model, parent).thread === sample.thread && sampleOf(model, parent).process === sample.process;
      depth[event] = isSame ? depth[parent] + 1 : 0;
      if (!threads.has(key)) threads.set(key, { name: sample.thread, levels: 0, events: [] });
      const thread = threads.get(key);
      thread.levels = Math.min(MOST_LEVELS, Math.max(thread.levels, depth[event] + 1));
      thread.events.push(event);
      total = Math.max(total, model.events.start[event] + Math.max(0, model.events.spent[event]));
    }
    lanes = { threads: [...threads.values()], depth };
    Object.assign(view, { from: 0, to: total });
  }

  function paint() {
    if (pane.hidden) return;
    if (!lanes) prepare();
    const width = canvas.parentElement.clientWidth, height = lanes.threads.reduce((sum, thread) => sum + thread.levels * ROW + 18, 4), ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio; canvas.height = height * ratio;
    canvas.style.width = width + "px"; canvas.style.height = height + "px";
    const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue("--" + name).trim();
    pen.scale(ratio, ratio);
    pen.font = "10.5px " + colour("mono");
    const colours = { box: colour("bar"), lit: colour("accent"), near: colour("near"), failed: colour("red"), text: colour("ink"), dim: colour("dim") };
    const scale = width / (view.to - view.from), chosen = app.item ? new Set(app.item.nodes) : new Set();
    let y = 2;
    for (const thread of lanes.threads) {
      pen.fillStyle = colours.dim;
      pen.fillText(safe(thread.name), 6, y + 11);
      y += 15;
      let painted = new Float64Array(MOST_LEVELS).fill(-1);
      for (const event of thread.events) {
        const level = lanes.depth[event];
        if (level >= MOST_LEVELS) continue;
        const x = (model.events.start[event] - view.from) * scale, w = Math.max(0.6, Math.max(0, model.events.spent[event]) * scale);
        if (x + w < 0 || x > width) continue;
        const isLit = event === app.selected || chosen.has(event), isHit = app.found && app.found.events.has(event);
        if (x + w <= painted[level] + 0.5 && !isLit && !isHit) continue;
        painted[level] = Math.max(painted[level], x + w);
        const sample = sampleOf(model, event);
        pen.globalAlpha = app.found && !isHit ? 0.25 : 1;
        pen.fillStyle = sample.error ? colours.failed : event === app.selected ? colours.lit : isLit || isHit ? colours.near : colours.box;
        pen.fillRect(x, y + level * ROW, Math.max(0.6, w - 0.6), ROW - 2);
        if (w > 34) {
          pen.save();
          pen.beginPath(); pen.rect(x, y + level * ROW, w - 2, ROW); pen.clip();
          pen.fillStyle = event === app.selected ? "#fff" : colours.text;
          pen.fillText(safe(shortName(event)), Math.max(x, 0) + 4, y + level * ROW + 10);
          pen.restore();
        }
      }
      pen.globalAlpha = 1;
      y += thread.levels * ROW + 3;
    }
    title.textContent = `host time, ${duration(view.to - view.from, model.tick)} · scroll to zoom`;
  }
  function name(sample) { return sample.kind === "module" ? sample.module || sample.name : sample.name; }
  function shortName(event) {
    const whole = name(sampleOf(model, event));
    let around = model.events.parent[event];
    while (around >= 0 && sampleOf(model, around).kind !== "module") around = model.events.parent[around];
    const above = around >= 0 ? sampleOf(model, around).module : "";
    return sampleOf(model, event).kind === "module" && above && whole.startsWith(above + ".") ? whole.slice(above.length + 1) : whole;
  }
  function at(pointer) {
    const box = canvas.getBoundingClientRect(), scale = box.width / (view.to - view.from), time = view.from + (pointer.clientX - box.left) / scale;
    let y = 17, best = -1;
    for (const thread of lanes.threads) {
      const level = Math.floor((pointer.clientY - box.top - y) / ROW);
      if (level >= 0 && level < thread.levels) {
        for (const event of thread.events) {
          if (lanes.depth[event] === level && model.events.start[event] <= time + 1 / scale && model.events.start[event] + Math.max(0, model.events.spent[event]) >= time - 1 / scale) best = event;
        }
        return best;
      }
      y += thread.levels * ROW + 18;
    }
    return best;
  }
  canvas.addEventListener("wheel", (wheel) => {
    wheel.preventDefault();
    const box = canvas.getBoundingClientRect(), part = (wheel.clientX - box.left) / box.width, span = view.to - view.from;
    if (Math.abs(wheel.deltaX) > Math.abs(wheel.deltaY)) { const by = (wheel.deltaX / box.width) * span; view.from += by; view.to += by; }
    else {
      const wide = Math.min(total, Math.max(20, span * Math.exp(wheel.deltaY / 400))), middle = view.from + part * span;
      view.from = middle - part * wide; view.to = view.from + wide;
    }
    if (view.from < 0) { view.to -= view.from; view.from = 0; }
    paint();
  }, { passive: false });
  canvas.addEventListener("click", (click) => { const event = at(click); if (event >= 0) app.select(event); });
  canvas.addEventListener("pointermove", (move) => {
    const event = at(move);
    canvas.title = event < 0 ? "" : safe(`${name(sampleOf(model, event))} · ${duration(model.events.spent[event], model.tick)}`);
  });
  new ResizeObserver(paint).observe(pane);
  return { draw: paint, at: (event) => shownEvent(model, event) };
}
return { makeTimeline };
})();
const in_search = (() => {
const { itemWith, sampleOf } = in_data;

function search(app, query) {
  const terms = query.trim().match(/\S+:"[^"]*"|\S+/g);
  if (!terms) return null;
  const { model } = app, tests = terms.map((term) => test(model, term)), known = new Map();
  const found = { events: new Set(), hits: new Set(), items: new Set(), around: new Set(), count: 0, first: -1 };
  for (let event = 0; event < model.events.size; event++) {
    const number = model.events.sample[event];
    if (!known.has(number)) known.set(number, tests.every((each) => each(event, model.samples[number])));
    if (!known.get(number)) continue;
    const item = itemWith(model, event);
    if (!item || !app.shows(top(model, item))) continue;
    found.events.add(event);
    found.count++;
    if (found.first < 0) found.first = model.itemOf.has(event) ? event : item.nodes[0];
    if (found.hits.has(item.number)) continue;
    found.hits.add(item.number);
    for (let each = item; each; each = model.items[each.parent]) {
      if (each !== item) found.around.add(each.number);
      found.items.add(each.number);
    }
  }
  return found;
}

function top(model, item) {
  while (item.parent >= 0) item = model.items[item.parent];
  return item;
}

function test(model, term) {
  const [, key, rest] = term.match(/^(?:(op|shape|line|module|kind|file):)?(.*)$/s), wanted = rest.replace(/^"|"$/g, "").toLowerCase();
  if (key === "op") return (_, sample) => (sample.kind === "op" || sample.kind === "function") && glob(wanted).test(sample.name.toLowerCase().replace(/^(tensor\.|aten::|f\.)/, "").replace(/\..*$/, ""));
  if (key === "shape") return (event) => [...model.events.takes[event], ...model.events.gives[event]].some((value) => isShape(model.values.word[value], wanted));
  if (key === "line") return (_, sample) => !!sample.at && sample.at.line <= Number(wanted) && sample.at.endLine >= Number(wanted);
  if (key === "module") return (_, sample) => sample.kind === "module" && (glob(wanted).test(sample.module.toLowerCase()) || sample.module.toLowerCase().split(".").some((_, at, parts) => glob(wanted).test(parts.slice(at).join("."))));
  if (key === "kind") return (_, sample) => sample.kind === wanted;
  if (key === "file") return (_, sample) => !!sample.at && sample.at.file >= 0 && model.files[sample.at.file].name.toLowerCase().includes(wanted);
  return (_, sample) => [sample.name, sample.code, sample.detail, sample.error, sample.target.join(" "), sample.kind === "module" ? sample.module : ""].some((text) => text.toLowerCase().includes(wanted));
}

function glob(pattern) {
  return new RegExp("^" + pattern.replace(/[.+^${}()|[\]\\?]/g, "\\$&").replace(/\*/g, ".*") + "$");
}
function isShape(word, wanted) {
  const sizes = (word.match(/\[(.*?)\]/) || [null, null])[1];
  if (sizes === null) return false;
  const have = sizes.split(",").map((size) => size.trim()), want = wanted.replace(/[[\]\s]/g, "").split(",");
  return have.length === want.length && want.every((size, at) => size === "*" || size === have[at]);
}

function nextMatch(app, step) {
  const shown = [...new Set([...app.found.hits].map((number) => app.eventOf(app.model.items[number])))].filter((event) => event >= 0).sort((a, b) => a - b);
  if (!shown.length) return -1;
  const at = shown.indexOf(app.selected);
  return at < 0 ? shown[0] : shown[(at + step + shown.length) % shown.length];
}
return { search, nextMatch };
})();
const in_app = (() => {
const { itemWith, sampleOf, opened, read, seenFrom, shownEvent, sourceValue, timesIn } = in_data;
const { h, safe } = in_dom;
const { measureOn } = in_letters;
const { makeCode } = in_code;
const { makeDetails } = in_details;
const { makeFlow } = in_flow;
const { makeSteps } = in_steps;
const { makeTimeline } = in_timeline;
const { nextMatch, search } = in_search;


class App {
  constructor(model) {
    Object.assign(this, { model, open: opened(model), rounds: new Map(), selected: -1, item: null, near: new Map(), found: null, process: null, panes: {} });
    this.shows = (item) => this.process === null || this.processOf(item) === this.process;
  }

  processOf(item) {
    const event = item.nodes.length ? item.nodes[0] : this.firstInside(item);
    return sampleOf(this.model, event).process;
  }

  emptyWord() {
    return this.model.run.complete ? "Nothing was recorded: no module or torch function ran inside the block." : "Nothing was written before the recording stopped.";
  }
  shown(item) {
    let at = 0, isThere = true;
    const path = [];
    for (let each = item; each; each = this.model.items[each.parent]) path.unshift(each);
    for (const each of path) {
      const [first, last] = timesIn(each, at);
      isThere = isThere && last > first;
      at = last > first ? first + Math.min(this.rounds.get(each.number) || 0, last - first - 1) : Math.min(first, each.slots.length - 1);
    }
    return { at, isThere };
  }

  eventOf(item) {
    return item.nodes.length ? item.nodes[this.shown(item).at] : -1;
  }

  firstInside(item) {
    while (!item.nodes.length && item.children.length) item = item.children.find((child) => this.shown(child).isThere) || item.children[0];
    return this.eventOf(item);
  }

  select(event, isFollowed = true) {
    if (!(event >= 0 && event < this.model.events.size)) return;
    this.selected = event;
    this.item = itemWith(this.model, event);
    let isNew = false;
    if (this.item) {
      this.turnTo(this.item, this.item.nodes.indexOf(shownEvent(this.model, event)));
      for (let each = this.model.items[this.item.parent]; each; each = this.model.items[each.parent]) if (!this.open.has(each.number)) { this.open.add(each.number); isNew = true; }
    }
    this.findNear();
    if (isNew) this.panes.flow.draw();
    this.panes.steps.draw(isFollowed);
    this.panes.flow.light(isFollowed);
    this.panes.code.draw(isFollowed);
    this.panes.details.draw();
    this.panes.timeline.draw();
    try { history.replaceState(null, "", "#event=" + event); } catch { /* a frame without an address */ }
  }

  turnTo(item, at) {
    for (let each = item; each; each = this.model.items[each.parent]) {
      const slot = each.slots[at];
      this.rounds.set(each.number, at - timesIn(each, slot)[0]);
      at = slot;
    }
  }

  findNear() {
    const { model, selected } = this;
    this.near = new Map();
    const add = (event, word) => { const item = event >= 0 ? itemWith(model, Math.max(seenFrom(model, event, selected), -1)) : null; if (item && item !== this.item) this.near.set(item.number, word); };
    model.events.takes[selected].forEach((value, at) => { if (!model.values.parameters.has(value)) add(model.values.maker[sourceValue(model, selected, at)], "maker"); });
    for (const value of model.events.gives[selected]) for (const event of (model.readers.get(value) || []).slice(0, 200)) if (event > selected && !isInside(model, event, selected)) add(event, "reader");
  }

  toggle(item) {
    if (!item.children.length) return;
    if (this.open.has(item.number)) this.open.delete(item.number); else this.open.add(item.number);
    this.drawAll();
  }

  openAll() {
    const closed = this.model.items.filter((item) => item.children.length && !this.open.has(item.number) && (item.parent < 0 || this.open.has(item.parent)));
    for (const item of closed) this.open.add(item.number);
    this.drawAll();
  }

  closeAll() {
    this.open.clear();
    this.drawAll();
  }

  selectLine(file, line) {
    const events = this.model.byLine.get(file + ":" + line);
    if (!events) return;
    const at = events.indexOf(this.selected);
    const outermost = events.reduce((best, event) => { const a = sampleOf(this.model, event).at, b = sampleOf(this.model, best).at; return a.endLine - a.line > b.endLine - b.line || (a.endLine === b.endLine && a.endCol - a.col > b.endCol - b.col) ? event : best; }, events[0]);
    this.select(at < 0 ? outermost : this.selected);
  }

  lineButtons() {
    const at = this.selected >= 0 ? sampleOf(this.model, this.selected).at : null, events = at ? this.model.byLine.get(at.file + ":" + at.line) || [] : [];
    const number = events.indexOf(this.selected);
    if (events.length < 2 || number < 0) return [];
    return turner(number, events.length, (to) => this.select(events[to]), ` at line ${at.line}`);
  }

  roundButtons() {
    for (let item = this.item; item; item = this.model.items[item.parent]) {
      const around = this.model.items[item.parent], [first, last] = timesIn(item, around ? this.shown(around).at : 0), size = last - first;
      if (size < 2) continue;
      const now = this.rounds.get(item.number) || 0;
      return turner(now, size, (to) => this.turn(item, to), "");
    }
    return [];
  }

  turn(item, to) {
    this.rounds.set(item.number, to);
    const event = this.shown(this.item).isThere ? this.eventOf(this.item) : this.firstInside(item);
    if (event >= 0) this.select(event, false);
  }

  searchFor(query) {
    this.found = search(this, query);
    this.panes.count.textContent = this.found ? this.found.count.toLocaleString("en") : "";
    if (this.found && this.found.first >= 0) {
      for (const number of this.found.around) if (this.found.around.size < 60) this.open.add(number);
    }
    this.drawAll();
  }

  save(kind, text) {
    const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "image/svg+xml" })), download: (this.model.run.name || "torchglass").replace(/[^\w.-]+/g, "_") + "." + kind });
    link.click();
  }

  drawAll() {
    this.panes.flow.draw();
    this.panes.steps.draw(false);
    this.panes.flow.light();
    this.panes.code.draw(false);
    this.panes.details.draw();
    this.panes.timeline.draw();
  }

  step(by) {
    const rows = this.panes.steps.rows(), at = rows.findIndex((row) => row.item === this.item);
    const row = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
    if (row) this.select(this.eventOf(row.item) >= 0 ? this.eventOf(row.item) : this.firstInside(row.item));
  }
}

function isInside(model, event, around) {
  while (event > around) event = model.events.parent[event];
  return event === around;
}

function turner(now, size, go, words) {
  return [h("button", { title: "before", disabled: now === 0, onclick: () => go(now - 1) }, "‹"), h("span", {}, `${now + 1} of ${size.toLocaleString("en")}${words}`), h("button", { title: "next", disabled: now === size - 1, onclick: () => go(now + 1) }, "›")];
}

function build(app, body) {
  const { model } = app, { run } = model;
  const pane = (name) => h("div", { class: "pane " + name, "data-pane": name });
  const panes = { steps: pane("steps"), flow: pane("flow"), code: pane("code"), details: pane("details"), timeline: pane("timeline") };
  panes.timeline.hidden = true;
  const box = h("input", { type: "search", placeholder: "softmax   op:matmul   shape:2,*,128   line:42   module:h.*", "aria-label": "search", spellcheck: "false" });
  const found = h("span", { class: "count" });
  let waiting = 0;
  let asked = "";
  const ask = () => { clearTimeout(waiting); if (asked !== box.value) { asked = box.value; app.searchFor(asked); } };
  box.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(ask, 40); });
  const time = h("button", { onclick: () => showTime() }, "Timeline");
  const showTime = () => { panes.timeline.hidden = !panes.timeline.hidden; time.classList.toggle("on", !panes.timeline.hidden); app.panes.timeline.draw(); };
  const dark = h("button", { title: "dark or light", onclick: () => setDark(!document.documentElement.classList.contains("dark")) }, "☾");
  const tabs = h("nav", { class: "tabs" }, ["steps", "flow", "code"].map((name) => h("button", { "data-tab": name, onclick: () => setTab(name) }, { steps: "Steps", flow: "Data flow", code: "Code" }[name])));
  const setTab = (name) => { body.setAttribute("data-tab", name); for (const each of tabs.children) each.classList.toggle("on", each.getAttribute("data-tab") === name); if (app.panes.flow) app.drawAll(); };
  body.append(h("div", { class: "bar" }, h("span", { class: "logo" }, "torchglass"), run.name ? h("span", { class: "name" }, run.name) : "", h("span", { class: "dim" }, `${run.events.toLocaleString("en")} events${run.took ? " · " + run.took : ""}${run.complete ? "" : " · incomplete"}`), processes(app), h("span", { class: "grow" }), h("label", { class: "search" }, box, found, h("kbd", {}, "/")), time, dark), failure(app), tabs,
    h("div", { class: "panes" }, panes.steps, panes.flow, h("div", { class: "side" }, panes.code, panes.details)), panes.timeline);
  app.panes.count = found;
  app.panes.steps = makeSteps(app, panes.steps);
  app.panes.flow = makeFlow(app, panes.flow);
  app.panes.code = makeCode(app, panes.code);
  app.panes.details = makeDetails(app, panes.details);
  app.panes.timeline = makeTimeline(app, panes.timeline);
  setTab("flow");
  keys(app, box, ask, { t: showTime, d: () => dark.click() });
  return box;
}

function failure(app) {
  const { run } = app.model;
  if (run.failed < 0) return "";
  const path = [];
  for (let item = itemWith(app.model, run.failed); item; item = app.model.items[item.parent]) path.unshift(item);
  return h("div", { class: "failure", role: "alert" }, h("b", {}, "✗ " + run.error), path.map((item, at) => [at ? " › " : "   ", h("a", { onclick: () => app.select(at === path.length - 1 ? run.failed : app.eventOf(item)) }, item.title || "repeat")]));
}

function processes(app) {
  const all = [...new Set(app.model.samples.map((sample) => sample.process))];
  if (all.length < 2) return "";
  const chooser = h("select", { "aria-label": "process", onchange: () => { app.process = chooser.value === "" ? null : Number(chooser.value); app.drawAll(); } }, h("option", { value: "" }, `all ${all.length} processes`), all.map((each) => h("option", { value: each }, "process " + each)));
  return chooser;
}

function setDark(isDark) {
  document.documentElement.classList.toggle("dark", isDark);
  try { localStorage.setItem("torchglass-dark", isDark ? "1" : ""); } catch { /* a sandboxed frame has none */ }
  if (window.torchglass) window.torchglass.panes.timeline.draw();
}

function wantsDark() {
  try { const kept = localStorage.getItem("torchglass-dark"); if (kept !== null) return kept === "1"; } catch { /* the same */ }
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function keys(app, box, ask, more) {
  const clear = () => { box.value = ""; ask(); };
  document.addEventListener("keydown", (key) => {
    if (key.target === box) {
      if (key.key === "Escape") { clear(); box.blur(); }
      if (key.key === "Enter") ask();
      if (key.key === "Enter" && app.found) { const event = nextMatch(app, key.shiftKey ? -1 : 1); if (event >= 0) app.select(event); }
      return;
    }
    if (key.ctrlKey || key.metaKey || key.altKey || key.target.tagName === "SELECT" || key.target.tagName === "INPUT") return;
    const does = {
      "/": () => box.focus(), ArrowDown: () => app.step(1), ArrowUp: () => app.step(-1), j: () => app.step(1), k: () => app.step(-1),
      ArrowRight: () => app.item && (app.item.children.length && !app.open.has(app.item.number) ? app.toggle(app.item) : app.step(1)),
      ArrowLeft: () => { if (!app.item) return; const around = app.model.items[app.item.parent]; if (app.item.children.length && app.open.has(app.item.number)) app.toggle(app.item); else if (around) app.select(app.eventOf(around) >= 0 ? app.eventOf(around) : app.firstInside(around)); },
      Enter: () => app.item && app.toggle(app.item), "[": () => press(app, 0), "]": () => press(app, 1), ...more,
      "+": () => app.panes.flow.zoom(1.25), "-": () => app.panes.flow.zoom(0.8), 0: () => app.panes.flow.fit(), Escape: clear,
    }[key.key];
    if (does) { key.preventDefault(); does(); }
  });
}

function press(app, which) {
  const buttons = app.roundButtons();
  if (buttons.length) buttons[which ? 2 : 0].click();
}

function linked() {
  const found = location.hash.match(/event=(\d+)/);
  return found ? Number(found[1]) : -1;
}

async function unpacked() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function start() {
  document.documentElement.classList.toggle("dark", wantsDark());
  const body = document.getElementById("page");
  try {
    measureOn(document);
    const app = new App(read(await unpacked()));
    window.torchglass = app;
    body.replaceChildren();
    build(app, body);
    document.title = safe((app.model.run.name || "trace") + " · torchglass");
    const { failed } = app.model.run, first = linked();
    app.drawAll();
    if (first >= 0 && first < app.model.events.size) app.select(first); else if (failed >= 0) app.select(failed);
    window.addEventListener("hashchange", () => { const event = linked(); if (event >= 0 && event !== app.selected) app.select(event); });
    window.addEventListener("resize", () => app.panes.flow.light());
    document.documentElement.setAttribute("data-ready", "");
  } catch (error) {
    body.replaceChildren(h("p", { class: "nothing" }, `This page could not be shown (${error.message}). It needs a browser of 2023 or later; torchglass show prints the same trace as text.`));
    throw error;
  }
}

start();
return {  };
})();
