// The steps: one row an item, what is in it below where it is open. Only rows in sight are made.
import { sampleOf } from "./data.js";
import { fill, h } from "./dom.js";

const ROW = 23;

export function stepRows(app) {
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

export function makeSteps(app, pane) {
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
