// The timeline: host time by thread, a row a level, on a canvas: a hundred thousand events are as many rectangles.
import { sampleOf, shownEvent } from "./data.js";
import { duration, fill, h, safe } from "./dom.js";

const ROW = 15, MOST_LEVELS = 12;

export function makeTimeline(app, pane) {
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
  // Inside another layer the path below it is enough, and fits.
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
