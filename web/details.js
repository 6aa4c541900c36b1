// The details of the selected event: what it is, what it took and from whom, what it gave and to whom, how long.
import { itemWith, sampleOf, seenFrom, shownEvent, sourceValue } from "./data.js";
import { count, duration, fill, h } from "./dom.js";

const MOST = 4;

export function makeDetails(app, pane) {
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

// What is seen of an event from the selected one; an event that has no box anywhere is told by itself.
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

// Statistics, where they were recorded: numbers in a row, and how the values are spread.
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

// The life of a name: each time the same function gave it a value.
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
