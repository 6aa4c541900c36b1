// The page itself: one selection (an event), what is open, which round; every pane draws from these.
import { itemWith, sampleOf, opened, read, seenFrom, shownEvent, sourceValue, timesIn } from "./data.js";
import { h, safe } from "./dom.js";
import { measureOn } from "./letters.js";
import { makeCode } from "./code.js";
import { makeDetails } from "./details.js";
import { makeFlow } from "./flow.js";
import { makeSteps } from "./steps.js";
import { makeTimeline } from "./timeline.js";
import { nextMatch, search } from "./search.js";


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

  // ---------------------------------------------------------------- which event an item stands for now

  // Which of its times an item shows, and whether it is in the round that is shown; if not, the next one that it is in.
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

  // ---------------------------------------------------------------- what is done

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

// ---------------------------------------------------------------- the frame of the page

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
