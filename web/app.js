// The page itself: one selection (an event), what is open, which round; every pane draws from these.
import { itemWith, sampleOf, opened, read, roundWord, seenFrom, shownEvent, sourceValue, timesIn } from "./data.js";
import { h, link, safe } from "./dom.js";
import { measureOn } from "./letters.js";
import { makeCode } from "./code.js";
import { makeDetails } from "./details.js";
import { makeDiff } from "./diff.js";
import { makeFlow } from "./flow.js";
import { adjustable } from "./panes.js";
import { makeScrubber } from "./scrubber.js";
import { makeSteps } from "./steps.js";
import { makeTimeline } from "./timeline.js";
import { nextMatch, search } from "./search.js";
import { helpButton } from "./help.js";
import { makeMarks } from "./marks.js";
import { makeOverlays } from "./overlays.js";
import { shareButton } from "./share.js";
import { makeState } from "./state.js";
import { makeTrail } from "./trail.js";

const MOST_READERS = 200;
const MOST_OPENED_BY_SEARCH = 60;
/** So many lines of a library say as much as one of the program's own. */
const OWN_COUNTS = 4;

class App {
  constructor(model) {
    this.model = model;
    this.open = opened(model);
    this.rounds = new Map();
    this.selected = -1;
    /** @type {import("./types").Item | null} */
    this.item = null;
    this.near = new Map();
    /** @type {import("./types").Found | null} */
    this.found = null;
    /**
     * What was open, selected and in sight when a search began.
     * @type {{open: Set<number>, selected: number, place: any} | null}
     */
    this.before = null;
    this.process = null;
    /** @type {any} */
    this.panes = {};
    // Whether details show the card that the page opened with, and which finding is open on it.
    this.isHome = true;
    this.finding = -1;
    this.trail = makeTrail(this);
    this.marks = makeMarks(this);
    this.diff = makeDiff(this);
    this.state = makeState(this);
    this.overlays = makeOverlays(this);
    this.shows = (item) => this.process === null || this.processOf(item) === this.process;
  }

  processOf(item) {
    const event = item.nodes.length ? item.nodes[0] : this.firstInside(item);
    return sampleOf(this.model, event).process;
  }

  emptyWord() {
    if (this.model.run.complete) return "Nothing was recorded: no module or torch function ran inside the block.";
    return "Nothing was written before the recording stopped.";
  }

  // ---------------------------------------------------------------- which event an item stands for now

  // Which of its times an item shows, and whether it is in the round that is shown; if not, the next one that it is in.
  shown(item) {
    let at = 0;
    let isThere = true;
    for (const each of this.pathTo(item)) {
      const [first, last] = timesIn(each, at);
      isThere = isThere && last > first;
      at = last > first ? first + Math.min(this.rounds.get(each.number) || 0, last - first - 1) : Math.min(first, each.slots.length - 1);
    }
    return { at, isThere };
  }

  // An item and those around it, the outermost first.
  pathTo(item) {
    const path = [];
    for (let each = item; each; each = this.model.items[each.parent]) path.unshift(each);
    return path;
  }

  eventOf(item) {
    return item.nodes.length ? item.nodes[this.shown(item).at] : -1;
  }

  firstInside(item) {
    while (!item.nodes.length && item.children.length) {
      item = item.children.find((child) => this.shown(child).isThere) || item.children[0];
    }
    return this.eventOf(item);
  }

  // ---------------------------------------------------------------- what is done

  // Select an event, everywhere. A loop or a group is no event: then the item is given that stands for it.
  select(event, isFollowed = true, item = null) {
    if (!(event >= 0 && event < this.model.events.size)) return;
    const inner = itemWith(this.model, event);
    this.selected = event;
    this.isHome = false;
    this.item = item || inner;
    let isNew = false;
    if (inner) {
      this.turnTo(inner, inner.nodes.indexOf(shownEvent(this.model, event)));
      isNew = this.openAround(this.item);
    }
    this.findNear();
    if (isNew) this.panes.flow.draw();
    this.panes.steps.draw(isFollowed);
    this.panes.flow.light(isFollowed);
    this.panes.code.draw(isFollowed);
    this.panes.details.draw();
    this.diff.follow(event);
    this.panes.timeline.draw();
    this.panes.scrubber.draw();
    this.say();
    this.state.visited();
  }

  // Open all that is around an item; whether anything was closed.
  openAround(item) {
    let isNew = false;
    for (const each of this.pathTo(item).slice(0, -1)) {
      isNew = isNew || !this.open.has(each.number);
      this.open.add(each.number);
    }
    return isNew;
  }

  // Of a loop or a group the first event in the round that is shown is selected with it.
  selectItem(item, isFollowed = true) {
    const event = this.eventOf(item);
    if (event >= 0) this.select(event, isFollowed);
    else this.select(this.firstInside(item), isFollowed, item);
  }

  // An edge is a value: select the step that gave it, or the one that takes it from outside, and point at the value.
  selectEdge({ from, to, out, into }) {
    const { items } = this.model;
    const target = items[to];
    const isMade = from >= 0 && !(target && target.parent === from);
    const item = isMade ? items[from] : target;
    if (!item) return;
    this.selectItem(item);
    this.panes.details.point(isMade ? "gives" : "takes", isMade ? out : into);
  }

  // For those who do not see the page: what is selected, in words.
  say() {
    const { item } = this;
    const { error } = sampleOf(this.model, this.selected);
    const words = item ? [item.title || item.code, item.detail, item.often] : [];
    if (item && item.gives) words.push("gives " + item.gives);
    if (error) words.push("failed: " + error);
    this.panes.said.textContent = safe(words.filter(Boolean).join(", "));
  }

  // Back to the card that the page opened with.
  goHome() {
    this.isHome = true;
    this.panes.details.draw();
    this.state.visited();
  }

  // The card, with one finding open and in sight, and the step at which it shows selected.
  showFinding(number) {
    const { event } = this.model.verdict.findings[number];
    if (event >= 0) this.select(event);
    this.finding = number;
    this.goHome();
    this.finding = -1;
    const shown = this.panes.details.body.querySelector(`[data-number="${number}"]`);
    if (shown) shown.scrollIntoView({ block: "nearest" });
  }

  // A line at which nothing was recorded can be shown all the same.
  showPlace(file, line) {
    if (file < 0) return;
    if (this.model.byLine.has(file + ":" + line)) this.selectLine(file, line);
    else this.panes.code.show(file, line);
  }

  // The function of which most lines did something, rather one of the program's own files than of a library's.
  showHeaviest() {
    const { byLine, files } = this.model;
    /** @type {Map<string, {file: number, first: number, lines: number, events: number}>} */
    const found = new Map();
    for (const events of byLine.values()) {
      const at = sampleOf(this.model, events[0]).at;
      if (!at) continue;
      const key = at.file + ":" + at.function;
      const of = found.get(key) || { file: at.file, first: at.line, lines: 0, events: 0 };
      found.set(key, { ...of, first: Math.min(of.first, at.line), lines: of.lines + 1, events: of.events + events.length });
    }
    const isOwn = ({ file }) => files[file].pieces.length === 1 && files[file].pieces[0].first === 1;
    const weight = (each) => each.lines * (isOwn(each) ? OWN_COUNTS : 1);
    const [most] = [...found.values()].sort((a, b) => weight(b) - weight(a) || b.events - a.events);
    if (most) this.panes.code.show(most.file, most.first);
  }

  turnTo(item, at) {
    for (let each = item; each; each = this.model.items[each.parent]) {
      const slot = each.slots[at];
      this.rounds.set(each.number, at - timesIn(each, slot)[0]);
      at = slot;
    }
  }

  // Who made what the selected step takes, and who takes what it gives.
  findNear() {
    const { model, selected } = this;
    const { events, values } = model;
    this.near = new Map();
    if (this.item && !this.item.nodes.length) {
      this.findNearGroup(this.item);
      return;
    }
    events.takes[selected].forEach((value, at) => {
      if (!values.parameters.has(value)) this.addNear(values.maker[sourceValue(model, selected, at)], "maker");
    });
    for (const value of events.gives[selected]) {
      for (const event of (model.readers.get(value) || []).slice(0, MOST_READERS)) {
        if (event > selected && !isInside(model, event, selected)) this.addNear(event, "reader");
      }
    }
  }

  addNear(event, word) {
    if (event < 0) return;
    const seen = seenFrom(this.model, event, this.selected);
    const item = seen >= 0 ? itemWith(this.model, seen) : null;
    if (item && item !== this.item) this.near.set(item.number, word);
  }

  // Of a loop or a group the lines say it.
  findNearGroup(item) {
    const around = this.model.items[item.parent];
    const beside = around ? around.children : this.model.top;
    const place = beside.indexOf(item);
    for (const { from, to } of around ? this.model.levels.get(around.number).edges : this.model.levels.get(-1).edges) {
      if (to === place && from >= 0 && from !== place) this.near.set(beside[from].number, "maker");
      if (from === place && to >= 0 && to !== place) this.near.set(beside[to].number, "reader");
    }
  }

  toggle(item) {
    if (!item.children.length) return;
    if (this.open.has(item.number)) this.open.delete(item.number);
    else this.open.add(item.number);
    this.state.opened();
    this.drawAll(item.number);
  }

  openAll() {
    const isOutermost = (item) => item.parent < 0 || this.open.has(item.parent);
    const closed = this.model.items.filter((item) => item.children.length && !this.open.has(item.number) && isOutermost(item));
    for (const item of closed) this.open.add(item.number);
    this.state.opened();
    this.drawAll();
  }

  // What is selected is in a box that is closed then: that box is selected instead, so the place is kept.
  closeAll() {
    this.open.clear();
    this.state.opened();
    const outermost = this.item ? this.pathTo(this.item)[0] : null;
    if (outermost && outermost !== this.item) this.selectItem(outermost);
    this.drawAll(outermost ? outermost.number : undefined);
  }

  selectLine(file, line) {
    const events = this.model.byLine.get(file + ":" + line);
    if (!events || events.includes(this.selected)) return;
    this.select(events.reduce((best, event) => (this.isWider(event, best) ? event : best), events[0]));
  }

  // Whether the expression of an event reaches further than another's.
  isWider(event, other) {
    const a = sampleOf(this.model, event).at;
    const b = sampleOf(this.model, other).at;
    const lines = a.endLine - a.line;
    const otherLines = b.endLine - b.line;
    return lines > otherLines || (a.endLine === b.endLine && a.endCol - a.col > b.endCol - b.col);
  }

  lineButtons() {
    const at = this.selected >= 0 ? sampleOf(this.model, this.selected).at : null;
    const events = at ? this.model.byLine.get(at.file + ":" + at.line) || [] : [];
    const number = events.indexOf(this.selected);
    if (events.length < 2 || number < 0) return [];
    return turner(number, events.length, (to) => this.select(events[to]), `${number + 1} of ${events.length.toLocaleString("en")} at line ${at.line}`);
  }

  roundButtons() {
    for (let item = this.item; item; item = this.model.items[item.parent]) {
      const around = this.model.items[item.parent];
      const [first, last] = timesIn(item, around ? this.shown(around).at : 0);
      const size = last - first;
      if (size < 2) continue;
      const now = this.rounds.get(item.number) || 0;
      return turner(now, size, (to) => this.turn(item, to), roundWord(item, first + now, item.slots[first]));
    }
    return [];
  }

  turn(item, to) {
    this.rounds.set(item.number, to);
    const own = this.item || item;
    if (!own.nodes.length) this.selectItem(own, false);
    else this.select(this.shown(own).isThere ? this.eventOf(own) : this.firstInside(item), false);
  }

  // Go to a round of a loop, counted in the shown time of the loop around it and among all of its rounds: with the
  // selected step if that is in it, else with the loop itself.
  scrub(loop, to, at) {
    const isInside = this.item && this.pathTo(this.item).includes(loop);
    if (isInside) this.turn(loop, to);
    else this.goToRound(loop, at);
  }

  // Go to one of all rounds of a loop, and of the loops around it.
  goToRound(loop, at) {
    this.turnTo(loop, at);
    this.selectItem(loop, false);
  }

  // ---------------------------------------------------------------- search

  // While something is searched, what holds it is open; when the search ends, all is as it was before.
  searchFor(query) {
    this.found = search(this, query);
    if (this.found && !this.before) {
      this.before = { open: new Set(this.open), selected: this.selected, place: this.panes.flow.place() };
    }
    if (this.found) {
      const { around } = this.found;
      const before = this.open.size;
      if (around.size < MOST_OPENED_BY_SEARCH) for (const number of around) this.open.add(number);
      this.drawFound(this.open.size > before);
    } else if (this.before) this.endSearch(this.before);
    this.countFound();
    this.state.searched(query);
  }

  endSearch({ open, selected, place }) {
    this.before = null;
    const was = this.open;
    this.open = open;
    if (this.item && this.selected !== selected) this.openAround(this.item);
    this.drawFound(was.size !== open.size || [...was].some((number) => !open.has(number)));
    if (this.selected === selected) this.panes.flow.restore(place);
  }

  countFound() {
    const { found } = this;
    const size = found ? found.count.toLocaleString("en") : "";
    const at = found ? found.inOrder.indexOf(this.selected) : -1;
    this.panes.count.textContent = at < 0 ? size : `${(at + 1).toLocaleString("en")} of ${size}`;
  }

  nextFound(step) {
    const event = this.found ? nextMatch(this, step) : -1;
    if (event >= 0) this.select(event);
    this.countFound();
  }

  save(kind, text) {
    const name = (this.model.run.name || "torchglass").replace(/[^\w.-]+/g, "_");
    const href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    h("a", { href, download: `${name}.${kind}` }).click();
  }

  // Draw every pane; the box that is given keeps its place.
  drawAll(held) {
    this.drawFound(true, held);
    this.panes.details.draw();
    this.panes.scrubber.draw();
  }

  // Draw the panes in which a search marks what it found; the sheet anew only where other boxes are open.
  drawFound(isNew, held) {
    if (isNew) this.panes.flow.draw(held);
    else this.panes.flow.light();
    this.panes.steps.draw(false);
    this.panes.code.draw(false);
    this.panes.timeline.draw();
  }

  step(by) {
    const rows = this.panes.steps.rows();
    const at = rows.findIndex((row) => row.item === this.item);
    const row = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
    if (row) this.selectItem(row.item);
  }

  stepIn() {
    if (!this.item) return;
    if (this.item.children.length && !this.open.has(this.item.number)) this.toggle(this.item);
    else this.step(1);
  }

  stepOut() {
    if (!this.item) return;
    const around = this.model.items[this.item.parent];
    if (this.item.children.length && this.open.has(this.item.number)) this.toggle(this.item);
    else if (around) this.selectItem(around);
  }
}

function isInside(model, event, around) {
  while (event > around) event = model.events.parent[event];
  return event === around;
}

function turner(now, size, go, words) {
  return [
    h("button", { title: "before", "aria-label": "the one before", disabled: now === 0, onclick: () => go(now - 1) }, "‹"),
    h("span", {}, words),
    h("button", { title: "next", "aria-label": "the next one", disabled: now === size - 1, onclick: () => go(now + 1) }, "›"),
  ];
}

// ---------------------------------------------------------------- the frame of the page

const TABS = { steps: "Steps", flow: "Data flow", code: "Code" };
const EXAMPLES = "softmax   op:matmul   shape:2,*,128   line:42   module:h.*";

function build(app, body) {
  const pane = (name, label) => h("section", { class: "pane " + name, "data-pane": name, "aria-label": label });
  const panes = {
    steps: pane("steps", "steps"),
    flow: pane("flow", "data flow"),
    code: pane("code", "code"),
    details: pane("details", "details"),
    timeline: pane("timeline", "timeline"),
    scrubber: pane("scrubber", "iterations"),
  };
  panes.timeline.hidden = true;
  const said = h("div", { class: "said", role: "status" });
  const found = h("span", { class: "count" });
  const { box, ask } = searchBox(app);
  const time = h("button", { "aria-pressed": "false", onclick: () => showTime() }, "Timeline");
  const showTime = () => {
    panes.timeline.hidden = !panes.timeline.hidden;
    time.classList.toggle("on", !panes.timeline.hidden);
    time.setAttribute("aria-pressed", String(!panes.timeline.hidden));
    app.panes.timeline.draw();
  };
  const rounds = h("button", { "aria-pressed": "true", class: "on", onclick: () => showRounds() }, "Iterations");
  const showRounds = () => {
    panes.scrubber.hidden = !panes.scrubber.hidden;
    rounds.classList.toggle("on", !panes.scrubber.hidden);
    rounds.setAttribute("aria-pressed", String(!panes.scrubber.hidden));
    app.panes.scrubber.draw();
  };
  const isDark = () => document.documentElement.classList.contains("dark");
  const dark = h("button", { title: "dark or light", "aria-label": "dark or light", onclick: () => setDark(!isDark()) }, "☾");
  const tabs = h("nav", { class: "tabs" }, Object.entries(TABS).map(([name, label]) => h("button", { "data-tab": name, onclick: () => setTab(name) }, label)));
  const setTab = (name) => {
    body.setAttribute("data-tab", name);
    for (const each of tabs.children) each.classList.toggle("on", each.getAttribute("data-tab") === name);
    if (app.panes.flow) app.drawAll();
  };
  const help = helpButton(body);
  const search = h("label", { class: "search" }, box, found, h("kbd", {}, "/"));
  const side = h("div", { class: "side" }, panes.code, panes.details);
  body.append(
    h("header", { class: "bar" }, about(app), processes(app), h("span", { class: "grow" }), search, rounds, time, shareButton(app), dark, help.button),
    failure(app) || "",
    tabs,
    h("main", { class: "panes" }, panes.steps, panes.flow, side),
    panes.scrubber,
    panes.timeline,
    said,
  );
  app.panes.count = found;
  app.panes.said = said;
  app.panes.steps = makeSteps(app, panes.steps);
  app.panes.flow = makeFlow(app, panes.flow);
  app.overlays.build(panes.flow);
  app.panes.code = makeCode(app, panes.code);
  app.panes.details = makeDetails(app, panes.details);
  app.diff.build(body, panes.code);
  app.panes.timeline = makeTimeline(app, panes.timeline);
  app.panes.scrubber = makeScrubber(app, panes.scrubber);
  if (!app.panes.scrubber.hasLoops) {
    panes.scrubber.hidden = true;
    rounds.hidden = true;
  }
  adjustable(body, () => app.panes.timeline.draw());
  setTab("flow");
  keys(app, box, ask, { t: showTime, i: () => rounds.hidden || showRounds(), d: () => dark.click(), "?": help.show });
  app.state.box = box;
}

function about(app) {
  const { run } = app.model;
  const took = run.took ? " · " + run.took : "";
  const name = run.name ? h("span", { class: "name", title: run.name }, run.name) : "";
  const size = `${run.events.toLocaleString("en")} events${took}${run.complete ? "" : " · incomplete"}`;
  return [h("h1", { class: "logo" }, "torchglass"), name, h("span", { class: "dim size" }, size)];
}

function searchBox(app) {
  const box = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: EXAMPLES, "aria-label": "search", spellcheck: "false" }));
  /** @type {any} */
  let waiting = 0;
  let asked = "";
  const ask = () => {
    clearTimeout(waiting);
    if (asked === box.value) return;
    asked = box.value;
    app.searchFor(asked);
  };
  box.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(ask, 40);
  });
  return { box, ask };
}

function failure(app) {
  const { run } = app.model;
  const item = run.failed >= 0 ? itemWith(app.model, run.failed) : null;
  if (run.failed < 0) return "";
  const path = item ? app.pathTo(item) : [];
  const links = path.map((each, at) => {
    const event = each === item ? run.failed : app.firstInside(each);
    return [at ? " › " : "", link(app, event, {}, each.title || each.code || "repeat")];
  });
  return h("div", { class: "failure", role: "alert" }, h("b", { title: run.error }, "✗ " + run.error), h("span", { class: "way" }, links));
}

function processes(app) {
  const all = [...new Set(app.model.samples.map((sample) => sample.process))];
  if (all.length < 2) return "";
  const choose = () => {
    app.process = chooser.value === "" ? null : Number(chooser.value);
    app.drawAll();
  };
  const options = all.map((each) => h("option", { value: each }, "process " + each));
  const every = h("option", { value: "" }, `all ${all.length} processes`);
  const chooser = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "process", onchange: choose }, every, options));
  return chooser;
}

function setDark(isDark) {
  document.documentElement.classList.toggle("dark", isDark);
  try {
    localStorage.setItem("torchglass-dark", isDark ? "1" : "");
  } catch {
    // a sandboxed frame has none
  }
  if (!window.torchglass) return;
  window.torchglass.panes.timeline.draw();
  window.torchglass.panes.scrubber.draw();
}

function wantsDark() {
  try {
    const kept = localStorage.getItem("torchglass-dark");
    if (kept !== null) return kept === "1";
  } catch {
    // the same
  }
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

// ---------------------------------------------------------------- keys

function keys(app, box, ask, more) {
  const clear = () => {
    box.value = "";
    ask();
  };
  const does = {
    "/": () => box.focus(),
    ArrowDown: () => app.step(1),
    ArrowUp: () => app.step(-1),
    j: () => app.step(1),
    k: () => app.step(-1),
    ArrowRight: () => app.stepIn(),
    ArrowLeft: () => app.stepOut(),
    Enter: () => app.item && app.toggle(app.item),
    "[": () => press(app, 0),
    "]": () => press(app, 2),
    "+": () => app.panes.flow.zoom(1.25),
    "-": () => app.panes.flow.zoom(0.8),
    0: () => app.panes.flow.fit(),
    Escape: clear,
    ...more,
  };
  box.addEventListener("keydown", (key) => {
    if (key.key === "Escape") {
      clear();
      box.blur();
    }
    if (key.key === "Enter") {
      ask();
      app.nextFound(key.shiftKey ? -1 : 1);
    }
  });
  document.addEventListener("keydown", (key) => {
    const target = /** @type {Element} */ (key.target);
    const isTyping = ["SELECT", "INPUT", "TEXTAREA"].includes(target.tagName);
    if (key.ctrlKey || key.metaKey || key.altKey || isTyping || key.defaultPrevented) return;
    // A button or a link that has the focus is what Enter and the space bar are for.
    if (key.key === "Enter" && target.closest("button, a, [role=separator]")) return;
    const action = does[key.key];
    if (!action) return;
    key.preventDefault();
    action();
  });
}

function press(app, which) {
  const buttons = app.roundButtons();
  if (buttons.length) buttons[which].click();
}

// ---------------------------------------------------------------- the start

/** @param {string} id @returns {any} */
function element(id) {
  return document.getElementById(id);
}

async function unpacked() {
  const packed = Uint8Array.from(atob(element("data").textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function start() {
  document.documentElement.classList.toggle("dark", wantsDark());
  const body = element("page");
  try {
    measureOn(document);
    const app = new App(read(await unpacked()));
    window.torchglass = app;
    document.documentElement.classList.add("live");
    body.replaceChildren();
    build(app, body);
    document.title = safe((app.model.run.name || "trace") + " · torchglass");
    const { failed } = app.model.run;
    app.drawAll();
    const { diff, verdict } = app.model;
    const answer = diff ? diff.event : verdict && verdict.kind === "bad" ? verdict.event : failed;
    const isLinked = app.state.restore(location.hash);
    if (!isLinked && answer >= 0) {
      app.select(answer);
      app.goHome();
    } else if (!isLinked && verdict && verdict.findings.length) {
      const { at } = verdict.findings[0];
      if (at && at.file >= 0) app.panes.code.show(at.file, at.line);
    } else if (!isLinked) app.showHeaviest();
    app.state.listen();
    document.documentElement.setAttribute("data-ready", "");
  } catch (error) {
    const words = `This page could not be shown (${/** @type {Error} */ (error).message}). It needs a browser of 2023 or later; torchglass show prints the same trace as text.`;
    document.documentElement.classList.add("live");
    body.replaceChildren(h("p", { class: "nothing" }, words));
    throw error;
  }
}

start();
