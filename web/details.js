// The details of the selected event: what it is, what it took and from whom, what it gave and to whom, how long.
import { itemWith, roundWord, sampleOf, seenFrom, shownEvent, sourceValue, timesIn } from "./data.js";
import { count, duration, fill, h, link } from "./dom.js";
import { diffCard } from "./diff.js";
import { tensorCard } from "./tensor.js";
import { verdictCard, verdictName } from "./verdict.js";

const MOST = 4;
const MOST_LEAVING = 200;
const MOST_LIVES = 40;

export function makeDetails(app, pane) {
  const title = h("span", { class: "dim" }), rounds = h("span", { class: "rounds" }), body = h("div", { class: "body" });
  const { verdict } = app.model;
  const home = verdict ? h("button", { class: "home", onclick: () => app.goHome() }, app.model.diff ? "Where they differ" : verdictName(verdict)) : "";
  pane.append(h("header", {}, h("b", {}, "Details"), title, h("span", { class: "grow" }), rounds, home), body);
  return {
    body,
    draw() {
      const { model, selected } = app;
      const card = app.isHome && verdict ? h("div", { class: "card" }, diffCard(app), verdictCard(app)) : "";
      if (home) home.classList.toggle("on", app.isHome);
      if (selected < 0) { title.textContent = ""; fill(body, card || h("p", { class: "nothing" }, "Select a step, a box or a line."), notes(model)); return; }
      if (app.item && !app.item.nodes.length) {
        title.textContent = "#" + selected;
        rounds.replaceChildren(...app.roundButtons());
        body.scrollTop = 0;
        fill(body, card, path(app), group(app), notes(model));
        return;
      }
      const sample = sampleOf(model, selected);
      title.textContent = "#" + selected;
      rounds.replaceChildren(...app.roundButtons());
      body.scrollTop = 0;
      fill(body, card, path(app), headline(app, sample), takes(app, sample), gives(app, sample), time(app), stack(app, sample), life(app, sample), notes(model));
    },
    // Mark one of the values that the selected event takes or gives, as the data flow counts them: without parameters.
    point(side, at) {
      const { model, selected } = app;
      const ids = model.events[side][selected];
      const isCounted = (value, place) => !model.values.parameters.has(value) && ids.indexOf(value) === place;
      const places = [...ids.keys()].filter((place) => isCounted(ids[place], place));
      const row = body.querySelector(`[data-side=${side}][data-at="${places[at]}"]`) || body.querySelector(`[data-side=${side}]`);
      for (const each of body.querySelectorAll(".pointed")) each.classList.remove("pointed");
      if (!row) return;
      row.classList.add("pointed");
      row.scrollIntoView({ block: "nearest" });
    },
  };
}

// A loop, or steps that repeat together: the round that is shown, and what is in it.
function group(app) {
  const { item, model } = app;
  const at = app.shown(item).at;
  const inside = item.children.filter((child) => app.shown(child).isThere);
  const spent = spentIn(model, item, at);
  const rows = inside.map((child) => {
    const event = app.eventOf(child) >= 0 ? app.eventOf(child) : app.firstInside(child);
    const name = h("code", {}, child.title || child.code);
    return h("div", { class: "frame" }, link(app, event, { class: "step" }, h("i", { class: "dot " + child.hue }), name), h("code", { class: "shape" }, child.gives));
  });
  const round = item.slots.length > 1 ? `round ${roundWord(item, at, item.slots[at])}` : item.detail;
  return [
    h("h2", {}, h("code", {}, item.code || item.title || "repeat"), item.often ? h("span", { class: "often" }, item.often) : ""),
    h("p", {}, h("span", { class: "tag" }, item.kind === "loop" ? "loop" : item.kind === "library" ? "steps of a library" : "steps"), " ", round),
    item.only && h("p", { class: "dim" }, item.only),
    section("in it", rows),
    section("time", h("p", {}, h("b", {}, duration(spent, model.tick)), h("span", { class: "dim" }, " host time in these steps"))),
  ];
}

// The host time of the steps that were in one time of a loop or a group, also of those in the loops inside it.
function spentIn(model, item, slot) {
  let spent = 0;
  for (const child of item.children) {
    const [first, last] = timesIn(child, slot);
    for (let at = first; at < last; at++) {
      spent += child.nodes.length ? Math.max(0, model.events.spent[child.nodes[at]]) : spentIn(model, child, at);
    }
  }
  return spent;
}

function notes(model) {
  return model.run.notes.map((note) => h("p", { class: "note" }, "note: " + note));
}

function path(app) {
  const around = [];
  let item = app.item ? app.model.items[app.item.parent] : null;
  if (app.item && app.item.nodes.length && app.model.itemOf.get(app.selected) !== app.item) item = app.item;
  for (; item; item = app.model.items[item.parent]) around.unshift(item);
  return h("p", { class: "path" }, around.map((each) => [itemLink(app, each), " › "]));
}

function itemLink(app, item) {
  const onclick = (click) => {
    click.preventDefault();
    app.selectItem(item);
  };
  return h("a", { href: "#event=" + app.firstInside(item), onclick }, item.title || item.code || "repeat");
}

function headline(app, sample) {
  const item = app.model.itemOf.get(app.selected), at = sample.at;
  return [
    h("h2", {}, h("i", { class: "dot " + (item ? item.hue : "") }), h("code", {}, sample.code || sample.name)),
    h("p", {}, h("span", { class: "tag" }, sample.kind), " ", sample.kind === "module" ? sample.detail : sample.name, parametersOf(item, sample), sample.module && sample.kind !== "module" ? h("span", { class: "dim" }, "  in " + sample.module) : "", sample.phase === "backward" ? h("span", { class: "dim" }, "  backward") : ""),
    item && item.only && h("p", { class: "dim" }, item.only),
    sample.error && h("p", { class: "error" }, "✗ " + sample.error),
    sample.note && h("p", { class: "note" }, sample.note),
    at && h("p", {}, place(app, at, app.selected), h("span", { class: "dim" }, " in " + at.function)),
  ];
}

function parametersOf(item, sample) {
  if (sample.kind !== "module" || !item || !(item.parameters > 0)) return "";
  return h("span", { class: "dim" }, `  ${count(item.parameters)} parameters`);
}

function place(app, at, event) {
  const file = at.file >= 0 ? app.model.files[at.file].name : at.path;
  return link(app, event, {}, `${file.split("/").pop()}:${at.line}`);
}

function takes(app, sample) {
  const { model, selected } = app, ids = model.events.takes[selected];
  return section("takes", ids.length ? ids.map((value, at) => {
    const source = sourceValue(model, selected, at), isParameter = model.values.parameters.has(value), operand = sample.operands[at] || "";
    const maker = model.values.maker[source];
    return line(sample.roles[at], [h("code", { class: "shape" }, model.values.word[value]), " ", isParameter ? h("span", { class: "tag" }, "parameter") : "", " ", operand !== sample.roles[at] ? h("code", { class: "dim" }, operand) : "",
      !isParameter && maker >= 0 && maker !== selected ? h("div", {}, h("span", { class: "dim" }, "from "), step(app, seen(app, maker))) : "", tensorCard(app, value, "takes", at)], { "data-side": "takes", "data-at": at });
  }) : sample.args && sample.args !== "()" ? h("code", { class: "dim" }, sample.args) : h("span", { class: "dim" }, "nothing"));
}

function gives(app, sample) {
  const { model, selected } = app, ids = model.events.gives[selected];
  if (sample.error) return section("gives", h("span", { class: "dim" }, "nothing: it failed"));
  return section("gives", ids.length ? ids.map((value, at) => {
    const readers = [...new Set((model.readers.get(value) || []).filter((event) => event > selected && !inside(model, event, selected)).map((event) => seen(app, event)))];
    const name = sample.target.length === ids.length ? sample.target[at] : at === 0 && sample.target.length === 1 ? sample.target[0] : "";
    return line(sample.results[at], [h("code", { class: "shape" }, model.values.word[value]), " ", h("code", { class: "dim" }, name),
      readers.length ? h("div", {}, h("span", { class: "dim" }, "to "), readers.slice(0, MOST).map((event) => step(app, event)), readers.length > MOST ? h("span", { class: "dim" }, ` +${readers.length - MOST} more`) : "") : "", tensorCard(app, value, "gives", at)], { "data-side": "gives", "data-at": at });
  }) : h("code", { class: "dim" }, resultWord(app, sample)), leaves(app));
}

function resultWord(app, sample) {
  if (sample.result && sample.result !== "None") return sample.result;
  return leaving(app).length ? "returns nothing" : "nothing";
}

// What was made in an event and is taken after it without being returned: the gradients of a backward, a cache.
function leaving(app) {
  const { model, selected } = app;
  const { events } = model;
  const found = [];
  const seen = new Set(events.gives[selected]);
  for (let event = selected + 1; event < events.size && events.parent[event] >= selected && found.length < MOST_LEAVING; event++) {
    for (const value of events.gives[event]) {
      if (seen.has(value) || model.values.parameters.has(value)) continue;
      seen.add(value);
      const readers = (model.readers.get(value) || []).filter((reader) => reader > selected && !inside(model, reader, selected));
      if (readers.length) found.push({ value, readers });
    }
  }
  return found;
}

function leaves(app) {
  const { model } = app;
  const found = leaving(app);
  const rows = found.slice(0, 2 * MOST).map(({ value, readers }) => {
    const all = [...new Set(readers.map((event) => seen(app, event)))];
    const to = h("div", {}, h("span", { class: "dim" }, "to "), all.slice(0, MOST).map((event) => step(app, event)));
    return line("made in it", [h("code", { class: "shape" }, model.values.word[value]), to], { "data-side": "gives" });
  });
  const more = found.length - rows.length;
  return [rows, more > 0 ? h("p", { class: "dim" }, `and ${more} more`) : ""];
}

function inside(model, event, around) {
  while (event > around) event = model.events.parent[event];
  return event === around;
}

// What is seen of an event from the selected one; an event that has no box anywhere is told by itself.
function seen(app, event) {
  const found = seenFrom(app.model, event, app.selected);
  return found < 0 ? event : found;
}

function step(app, event) {
  const shown = shownEvent(app.model, event), sample = sampleOf(app.model, shown >= 0 ? shown : event), item = itemWith(app.model, event);
  const name = sample.kind === "module" ? (item ? item.title : sample.name) : sample.code || sample.name;
  return link(app, shown >= 0 ? shown : event, { class: "step", title: name }, h("i", { class: "dot " + (item ? item.hue : "") }), sample.kind === "module" ? name : h("code", {}, name));
}

function section(name, ...content) {
  return h("section", {}, h("h3", {}, name), content);
}

function line(role, content, properties = {}) {
  return h("div", { class: "value", ...properties }, h("span", { class: "role" }, role || "—"), h("div", {}, content));
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

// The life of a name: each time the same function gave it a value.
function life(app, sample) {
  const { model } = app, name = sample.target[0] || (sample.kind === "variable" ? sample.name : "");
  if (!name || !sample.at) return "";
  const isMeant = model.samples.map((each) => !!each.at && each.at.function === sample.at.function && each.at.file === sample.at.file && (each.target.includes(name) || (each.kind === "variable" && each.name === name)));
  const rows = [];
  const first = model.samples.map((_, number) => model.firstOf[number]).filter((_, number) => isMeant[number]);
  for (const event of first.sort((a, b) => a - b).slice(0, MOST_LIVES)) {
    const number = model.events.sample[event];
    const each = model.samples[number], value = model.events.gives[event][Math.max(0, each.target.indexOf(name))];
    rows.push(h("div", { class: "frame" }, link(app, event, {}, ":" + each.at.line), " ", h("code", {}, each.code), " ", h("code", { class: "shape" }, value === undefined ? "" : model.values.word[value])));
  }
  return rows.length > 1 ? section(`life of ${name}`, rows) : "";
}
