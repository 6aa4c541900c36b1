// @ts-check
// The steps: one row an item, what is in it below where it is open. Only rows in sight are made.
import { sampleOf } from "./data.js";
import { fill, h } from "./dom.js";

const ROW = 23;
const INDENT = 14;
const DEEPEST = 30;
const BEYOND = 8;

/**
 * Return the rows that are open now, in order.
 * @param {import("./types").App} app
 * @returns {import("./types").Row[]}
 */
export function stepRows(app) {
  const { model, open, found } = app;
  /** @type {import("./types").Row[]} */
  const rows = [];
  /** @param {import("./types").Item[]} items @param {number} depth */
  const walk = (items, depth) => {
    for (const item of items) {
      if (found && !found.items.has(item.number)) continue;
      rows.push({ item, depth });
      const isOpen = open.has(item.number) || (found && found.around.has(item.number));
      if (item.children.length && isOpen) walk(item.children, depth + 1);
    }
  };
  walk(model.top.filter((item) => app.shows(item)), 0);
  return rows;
}

/**
 * @param {import("./types").App} app
 * @param {HTMLElement} pane
 */
export function makeSteps(app, pane) {
  const space = h("div", { class: "space", role: "presentation" });
  const list = h("div", { class: "rows", tabindex: 0, role: "tree", "aria-label": "steps" }, space);
  const title = h("span", { class: "dim" });
  const openAll = h("button", { title: "open all levels", "aria-label": "open all levels", onclick: () => app.openAll() }, "⊞");
  const closeAll = h("button", { title: "close all", "aria-label": "close all", onclick: () => app.closeAll() }, "⊟");
  pane.append(h("header", {}, h("b", {}, "Steps"), title, h("span", { class: "grow" }), openAll, closeAll), list);
  /** @type {import("./types").Row[]} */
  let rows = [];

  function paint() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - BEYOND);
    const last = Math.min(rows.length, first + Math.ceil((list.clientHeight || 800) / ROW) + 2 * BEYOND);
    space.style.height = `${rows.length * ROW}px`;
    fill(space, rows.slice(first, last).map((row, at) => stepRow(app, row, first + at)));
    if (!rows.length) fill(space, h("p", { class: "nothing" }, app.found ? "Nothing matches." : app.emptyWord()));
    const selected = space.querySelector(".row.selected");
    if (selected) list.setAttribute("aria-activedescendant", selected.id);
    else list.removeAttribute("aria-activedescendant");
  }

  function follow() {
    const at = rows.findIndex((row) => row.item === app.item);
    const top = at * ROW;
    const height = list.clientHeight || 400;
    const isHidden = top < list.scrollTop + ROW || top > list.scrollTop + height - 2 * ROW;
    if (at >= 0 && isHidden) list.scrollTop = Math.max(0, top - height / 3);
  }

  list.addEventListener("scroll", paint);
  new ResizeObserver(paint).observe(list);
  return {
    rows: () => rows,
    /** @param {boolean} isFollowed */
    draw(isFollowed) {
      rows = stepRows(app);
      const { model, found } = app;
      const whole = found ? ` · ${found.count.toLocaleString("en")} found` : ` of ${model.events.size.toLocaleString("en")} events`;
      title.textContent = `${rows.length.toLocaleString("en")} rows${whole}`;
      // The height first: else there is nothing to scroll to.
      space.style.height = `${rows.length * ROW}px`;
      if (isFollowed) follow();
      paint();
    },
  };
}

/**
 * @param {import("./types").App} app
 * @param {import("./types").Row} row
 * @param {number} at
 */
function stepRow(app, { item, depth }, at) {
  const { model } = app;
  const event = app.eventOf(item);
  const sample = event >= 0 ? sampleOf(model, event) : null;
  const isFailed = model.failing.has(item.number);
  const isSelected = item === app.item;
  const classes = ["row"];
  if (isSelected) classes.push("selected");
  else classes.push(app.near.get(item.number) || "");
  if (isFailed) classes.push("failed");
  classes.push(app.trail.stateOf(item), app.diff.stateOf(item));
  if (app.found && !app.found.hits.has(item.number)) classes.push("faint");
  const hasInside = item.children.length > 0;
  const properties = {
    class: classes.filter(Boolean).join(" "),
    id: `row-${item.number}`,
    role: "treeitem",
    "data-item": item.number,
    "aria-level": depth + 1,
    "aria-expanded": hasInside ? String(app.open.has(item.number)) : undefined,
    "aria-selected": String(isSelected),
    style: `top:${at * ROW}px;padding-left:${10 + Math.min(depth, DEEPEST) * INDENT}px`,
    onclick: () => app.selectItem(item),
    ondblclick: () => app.toggle(item),
  };
  return h("div", properties, chevron(app, item), h("i", { class: `dot ${item.hue}` }), h("span", { class: "label" }, name(item, sample)),
    item.where && h("span", { class: "only where", title: item.where }, item.where), item.often && h("span", { class: "often" }, item.often), item.only && h("span", { class: "only", title: item.only }, item.only), app.marks.ofRow(item), gives(item, sample, isFailed));
}

/** @param {import("./types").App} app @param {import("./types").Item} item */
function chevron(app, item) {
  let state = "";
  if (item.children.length) state = app.open.has(item.number) ? " open" : " closed";
  const toggle = (/** @type {Event} */ click) => {
    click.stopPropagation();
    app.toggle(item);
  };
  return h("i", { class: `chevron${state}`, onclick: toggle });
}

/** @param {import("./types").Item} item @param {import("./types").Sample | null} sample */
function name(item, sample) {
  const isLayer = (sample && sample.kind === "module") || item.kind === "repeat" || item.kind === "library";
  if (isLayer) return [h("b", {}, item.title || "repeat"), h("span", { class: "dim" }, item.detail)];
  return [h("code", {}, item.code || item.title)];
}

/** @param {import("./types").Item} item @param {import("./types").Sample | null} sample @param {boolean} isFailed */
function gives(item, sample, isFailed) {
  if (isFailed && sample && sample.error) return h("span", { class: "error" }, `✗ ${sample.error.split(":")[0]}`);
  return h("code", { class: "shape" }, item.gives);
}
