// Search: words, and op:, shape:, line:, module:, kind:; all must hold. Asked once for each way of saying an event.
import { itemWith, sampleOf } from "./data.js";

export function search(app, query) {
  const terms = query.trim().match(/\S+:"[^"]*"|\S+/g);
  if (!terms) return null;
  const { model } = app, tests = terms.map((term) => test(model, term)), known = new Map();
  const isOwn = terms.some((term) => CONTENTS.has(term.toLowerCase()) && hasStats(model));
  /** @type {import("./types").Found} */
  const found = { events: new Set(), inOrder: [], hits: new Set(), items: new Set(), around: new Set(), count: 0, first: -1 };
  for (let event = 0; event < model.events.size; event++) {
    const number = model.events.sample[event];
    if (isOwn || !known.has(number)) known.set(number, tests.every((each) => each(event, model.samples[number])));
    if (!known.get(number)) continue;
    const item = itemWith(model, event);
    if (!item || !app.shows(top(model, item))) continue;
    found.events.add(event);
    found.inOrder.push(event);
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

// `nan` and `inf` mean what is in the values, where that was measured: it differs between events that are alike.
const CONTENTS = new Set(["nan", "inf"]);

function hasStats(model) {
  return Object.keys(model.values.stats).length > 0;
}

function holds(model, event, what) {
  return model.events.gives[event].some((value) => {
    const stats = model.values.stats[value];
    return !!stats && stats[what] > 0;
  });
}

function top(model, item) {
  while (item.parent >= 0) item = model.items[item.parent];
  return item;
}

function test(model, term) {
  if (CONTENTS.has(term.toLowerCase()) && hasStats(model)) return (event) => holds(model, event, term.toLowerCase());
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

// `2,*,128`: a star is one dimension.
function isShape(word, wanted) {
  const sizes = (word.match(/\[(.*?)\]/) || [null, null])[1];
  if (sizes === null) return false;
  const have = sizes.split(",").map((size) => size.trim()), want = wanted.replace(/[[\]\s]/g, "").split(",");
  return have.length === want.length && want.every((size, at) => size === "*" || size === have[at]);
}

// The event found before or after the selected one; after the last comes the first.
export function nextMatch(app, step) {
  const { inOrder } = app.found;
  if (!inOrder.length) return -1;
  const at = inOrder.findIndex((event) => event >= app.selected);
  if (at < 0) return step > 0 ? inOrder[0] : inOrder[inOrder.length - 1];
  if (inOrder[at] !== app.selected && step > 0) return inOrder[at];
  return inOrder[(at + step + inOrder.length) % inOrder.length];
}
