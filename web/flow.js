// The data flow pane: the scene on a sheet that can be moved and made larger.
import { scene } from "./graph.js";
import { h, svgElement } from "./dom.js";
import { svg } from "./picture.js";

const MOST_SEEN = 400, READABLE = 0.7;

export function makeFlow(app, pane) {
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
  // Of a large sheet only what is in sight is there: a browser is slow with tens of thousands of elements.
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
