// Boxes coloured by a number: time, memory, parameters, spread, zeros, or how far apart two runs are; with a legend.
import { duration, fill, h } from "./dom.js";
import { sizeWord } from "./tensor.js";

const STRONGEST = 55;
const FAINTEST = 4;

/** @typedef {{name: string, label: string, of: (event: number) => number | null, word: (number: number) => string, isLinear?: boolean, colour?: string, isSum?: boolean}} Overlay */

/**
 * @param {any} app
 */
export function makeOverlays(app) {
  const { model } = app;
  const overlays = /** @type {Overlay[]} */ (overlaysOf(model));
  const legend = h("div", { class: "key", hidden: true });
  const chooser = h("select", { "aria-label": "colour of the boxes", title: "colour the boxes by", onchange: () => choose(chooser.value) });
  chooser.append(h("option", { value: "" }, "colour by kind"), ...overlays.map((each) => h("option", { value: each.name }, "by " + each.label)));
  /** @type {any} */
  let chosen = null;
  let low = 0;
  let high = 0;

  /** @param {string} name */
  function choose(name) {
    chosen = overlays.find((each) => each.name === name) || null;
    chooser.value = chosen ? chosen.name : "";
    app.panes.flow.light();
    app.state.coloured();
  }

  /** The number of an item in the round that is shown: its own, or of a loop that of what is in it. */
  function numberOf(item) {
    const event = app.eventOf(item);
    if (event >= 0) return chosen.of(event);
    const inside = item.children.map(numberOf).filter((each) => each !== null);
    if (!inside.length) return null;
    return chosen.isSum ? inside.reduce((sum, each) => sum + each, 0) : Math.max(...inside);
  }

  const isBox = (mark) => mark.item !== undefined && mark.toggle === undefined && mark.c.startsWith("box");

  /**
   * Before boxes are coloured: the ends of what is in sight.
   * @param {{marks: any[]}} drawn
   */
  function begin(drawn) {
    legend.hidden = !chosen;
    if (!chosen) return;
    const known = drawn.marks.filter(isBox).map((mark) => numberOf(model.items[mark.item])).filter((each) => each !== null && Number.isFinite(each));
    const shown = chosen.isLinear ? known : known.filter((each) => each > 0);
    low = shown.length ? Math.min(...shown) : 0;
    high = shown.length ? Math.max(...shown) : 0;
    const colour = chosen.colour || "var(--accent)";
    const scale = h("i", { class: "scale", style: `background:linear-gradient(90deg,${mixed(colour, FAINTEST)},${mixed(colour, STRONGEST)})` });
    const ends = shown.length ? [chosen.word(low), scale, chosen.word(high)] : ["nothing of that was recorded"];
    fill(legend, h("b", {}, chosen.label), ends.map((each) => h("span", {}, each)));
  }

  /** @param {SVGElement} element @param {any} mark */
  function mark(element, mark) {
    if (!isBox(mark)) return;
    const number = chosen ? numberOf(model.items[mark.item]) : null;
    if (number === null || !Number.isFinite(number)) element.style.fill = "";
    else element.style.fill = mixed(chosen.colour || "var(--accent)", FAINTEST + part(number) * (STRONGEST - FAINTEST));
  }

  /** Where a number lies between the ends, from 0 to 1. */
  function part(number) {
    if (high <= low) return number > 0 ? 1 : 0;
    if (chosen.isLinear) return (number - low) / (high - low);
    return number <= low ? 0 : Math.min(1, Math.log(number / low) / Math.log(high / low));
  }

  return {
    begin,
    mark,
    choose,
    chosen: () => (chosen ? chosen.name : ""),
    /** @param {HTMLElement} pane */
    build(pane) {
      const header = pane.querySelector("header");
      const dim = header && header.querySelector(".grow");
      if (dim) dim.before(chooser);
      pane.append(legend);
    },
  };
}

function mixed(colour, percent) {
  return `color-mix(in srgb, ${colour} ${percent.toFixed(0)}%, var(--paper))`;
}

// ---------------------------------------------------------------- what there is to colour by

function overlaysOf(model) {
  const { events, values } = model;
  const hasStats = Object.keys(values.stats).length > 0;
  const most = (numbers) => (numbers.length ? Math.max(...numbers) : null);
  // The spread of labels and masks says nothing, and would outdo all others.
  const spreadsOf = (event) => {
    const floats = events.gives[event].filter((value) => /^(f|bf)\d/.test(values.word[value]) && values.stats[value]);
    return floats.map((value) => values.stats[value].std).filter((each) => each !== undefined);
  };
  const exact = (number) => (number !== 0 && (number < 1e-3 || number >= 1e4) ? number.toExponential(1) : String(Math.round(number * 1000) / 1000));
  /** @type {any[]} */
  const found = [
    { name: "time", label: "host time", of: (event) => (events.spent[event] < 0 ? null : events.spent[event]), word: (number) => duration(number, model.tick), isSum: true },
    { name: "memory", label: "bytes of the output", of: (event) => bytesOf(model, event), word: sizeWord, isSum: true },
    { name: "parameters", label: "parameters", of: (event) => parametersOf(model, event), word: (number) => number.toLocaleString("en"), isSum: true },
  ];
  if (hasStats) {
    found.push({ name: "spread", label: "σ of the output", of: (event) => most(spreadsOf(event)), word: exact });
    found.push({ name: "zeros", label: "zeros in the output", of: (event) => most(shareOfZeros(model, event)), word: (number) => Math.round(100 * number) + " %", isLinear: true });
  }
  if (model.diff) {
    const errors = new Map(model.diff.rows.filter((row) => row.error !== null).map((row) => [row.value, row.error]));
    found.push({ name: "error", label: "error of the two runs", of: (event) => most(events.gives[event].map((value) => errors.get(value)).filter((each) => each !== undefined)), word: exact, colour: "var(--red)" });
  }
  return found;
}

function bytesOf(model, event) {
  const given = [...new Set(model.events.gives[event])].map((value) => model.values.sizes[model.values.word[value]]).filter(Boolean);
  return given.length ? given.reduce((sum, [bytes]) => sum + bytes, 0) : null;
}

function parametersOf(model, event) {
  const item = model.itemOf.get(event);
  return item && item.parameters > 0 ? item.parameters : null;
}

function shareOfZeros(model, event) {
  return model.events.gives[event].flatMap((value) => {
    const stats = model.values.stats[value];
    const size = model.values.sizes[model.values.word[value]];
    return stats && stats.zeros !== undefined && size && size[1] ? [stats.zeros / size[1]] : [];
  });
}
