// @ts-check
// The data flow pane: the scene on a sheet that can be moved and made larger, and that holds still when it changes.
import { scene } from "./graph.js";
import { h, svgElement } from "./dom.js";
import { svg } from "./picture.js";
import { makeMinimap } from "./minimap.js";
import { reach } from "./reach.js";

const SVG = "http://www.w3.org/2000/svg";
const MOST_SEEN = 400;
const MOST_MOVING = 900;
const MOVING_MS = 220;
const READABLE = 0.75;
const SMALLEST = 0.02;
const LARGEST = 4;
const TOP = 24;

/**
 * @param {import("./types").App} app
 * @param {HTMLElement} pane
 */
export function makeFlow(app, pane) {
  const title = h("span", { class: "dim" });
  const rounds = h("span", { class: "rounds" });
  const root = /** @type {SVGSVGElement} */ (document.createElementNS(SVG, "svg"));
  const sheet = document.createElementNS(SVG, "g");
  const about = { class: "sheet", role: "group", tabindex: "0", "aria-label": "data flow", "aria-roledescription": "diagram" };
  for (const [name, value] of Object.entries(about)) root.setAttribute(name, value);
  root.append(arrows(), sheet);
  const minimap = makeMinimap((x, y) => centre(x, y));
  pane.append(
    h("header", {}, h("b", {}, "Data flow"), title, h("span", { class: "grow" }), rounds,
      button("+", "larger", () => zoom(1.25)), button("−", "smaller", () => zoom(0.8)),
      button("fit", "fit all of it", () => fit()), button("svg", "svg: save as a picture", () => app.save("svg", svg(drawn)))),
    root, minimap.element);

  /** @type {import("./types").Scene} */
  let drawn = { w: 0, h: 0, marks: [], boxes: 0 };
  /** @type {SVGElement[]} */
  let elements = [];
  /** Where the sheet's corner is in the pane, and how large a unit of it is. */
  let at = { x: 20, y: 20, k: 1 };
  let isPlaced = false;

  const size = () => ({ w: root.clientWidth || 600, h: root.clientHeight || 600 });

  function move() {
    sheet.setAttribute("transform", `translate(${at.x},${at.y}) scale(${at.k})`);
    cull();
    minimap.show(drawn, at, size());
  }

  /** @param {number} factor */
  function zoom(factor, x = size().w / 2, y = size().h / 2) {
    const k = Math.min(LARGEST, Math.max(SMALLEST, at.k * factor));
    at = { k, x: x - ((x - at.x) * k) / at.k, y: y - ((y - at.y) * k) / at.k };
    move();
  }

  /** Bring a point of the sheet to the middle of the pane. */
  function centre(/** @type {number} */ x, /** @type {number} */ y) {
    const { w, h: height } = size();
    at = { k: at.k, x: w / 2 - x * at.k, y: height / 2 - y * at.k };
    move();
  }

  /** All of the sheet, however small that makes it. */
  function fit() {
    const { w, h: height } = size();
    const k = Math.max(SMALLEST, Math.min(1, (w - 48) / drawn.w, (height - 48) / drawn.h));
    at = { k, x: Math.max((w - drawn.w * k) / 2, TOP), y: TOP };
    move();
  }

  /** As the page opens: as large as can be read, the first box of the program in the middle. */
  function begin() {
    const { w } = size();
    const k = Math.max(READABLE, Math.min(1, (w - 48) / drawn.w));
    const first = drawn.marks.find((mark) => mark.item !== undefined && isBody(mark));
    let x = (w - drawn.w * k) / 2;
    if (drawn.w * k > w - 48 && first) {
      const box = sides(first);
      x = Math.min(TOP, Math.max(w - TOP - drawn.w * k, w / 2 - (box.x + box.w / 2) * k));
    }
    at = { k, x, y: TOP };
    move();
  }

  /** Of a large sheet only what is in sight is there: a browser is slow with tens of thousands of elements. */
  function cull() {
    if (drawn.marks.length < MOST_SEEN * 6) return;
    const { w, h: height } = size();
    const left = -at.x / at.k - 400;
    const top = -at.y / at.k - 400;
    const right = left + w / at.k + 800;
    const bottom = top + height / at.k + 800;
    elements.forEach((element, number) => {
      const { x, y, w: wide = 200, h: high = 20 } = drawn.marks[number];
      const isSeen = x === undefined || y === undefined || (x < right && y < bottom && x + wide > left && y + high > top);
      element.style.display = isSeen ? "" : "none";
    });
  }

  // ---------------------------------------------------------------- holding still

  /** The box that stays where it is while the sheet changes: the one that was opened, else the selected one, else one in sight. */
  function anchor(/** @type {number | undefined} */ wanted) {
    const { w, h: height } = size();
    const boxes = places(drawn);
    if (wanted !== undefined && boxes.has(wanted)) return wanted;
    const inSight = (/** @type {number} */ number) => {
      const box = boxes.get(number);
      if (!box) return false;
      const x = (box.x + box.w / 2) * at.k + at.x;
      const y = box.y * at.k + at.y;
      return x > 0 && x < w && y > 0 && y < height;
    };
    if (app.item && inSight(app.item.number)) return app.item.number;
    for (const number of boxes.keys()) if (inSight(number) && stillThere(number)) return number;
    return -1;
  }

  /** Whether an item is drawn with what is open now. */
  function stillThere(/** @type {number} */ number) {
    let item = app.model.items[app.model.items[number].parent];
    while (item) {
      if (!app.open.has(item.number)) return false;
      item = app.model.items[item.parent];
    }
    return true;
  }

  /** The nearest item around a box that is drawn in a scene. */
  function nearest(/** @type {Map<number, Box>} */ boxes, /** @type {number} */ number) {
    while (number >= 0 && !boxes.has(number)) number = app.model.items[number].parent;
    return number;
  }

  /** Draw anew around a box that keeps its place; what was there before slides to where it is now. */
  function draw(/** @type {number | undefined} */ wanted) {
    const before = places(drawn);
    const was = { ...at };
    const held = isPlaced ? anchor(wanted) : -1;
    drawn = scene(app.model, { model: app.model, open: app.open, shows: app.shows });
    title.textContent = `${drawn.boxes.toLocaleString("en")} boxes`;
    elements = drawn.marks.map((mark) => /** @type {SVGElement} */ (svgElement(mark)));
    sheet.replaceChildren(...elements, ...app.marks.badges(drawn));
    const now = places(drawn);
    if (!isPlaced) {
      begin();
      isPlaced = drawn.boxes > 0 && root.clientWidth > 0;
    } else {
      const kept = nearest(now, held);
      const old = before.get(held);
      const box = now.get(kept);
      if (old && box) {
        at = { k: was.k, x: was.x + (old.x + old.w / 2 - box.x - box.w / 2) * was.k, y: was.y + (old.y - box.y) * was.k };
      }
      keepInSight();
      move();
      slide(before, now, was);
    }
    light();
  }

  /** Some of the sheet is always to be seen. */
  function keepInSight() {
    const { w, h: height } = size();
    at.x = Math.min(w - 80, Math.max(80 - drawn.w * at.k, at.x));
    at.y = Math.min(height - 60, Math.max(60 - drawn.h * at.k, at.y));
  }

  function slide(/** @type {Map<number, Box>} */ before, /** @type {Map<number, Box>} */ now, /** @type {typeof at} */ was) {
    if (drawn.marks.length > MOST_MOVING || window.matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    elements.forEach((element, number) => {
      const mark = drawn.marks[number];
      const of = mark.item ?? mark.of;
      const old = of === undefined ? undefined : before.get(of);
      const box = of === undefined ? undefined : now.get(of);
      if (!old || !box) {
        element.animate([{ opacity: 0 }, { opacity: 0, offset: 0.4 }, {}], { duration: MOVING_MS });
        return;
      }
      const x = (old.x * was.k + was.x - (box.x * at.k + at.x)) / at.k;
      const y = (old.y * was.k + was.y - (box.y * at.k + at.y)) / at.k;
      if (Math.hypot(x, y) < 1) return;
      element.animate([{ transform: `translate(${x}px,${y}px)` }, { transform: "none" }], { duration: MOVING_MS, easing: "ease-out" });
    });
  }

  // ---------------------------------------------------------------- what is lit

  function light(isFollowed = false) {
    const selected = app.item ? app.item.number : -1;
    const { found } = app;
    app.overlays.begin(drawn);
    elements.forEach((element, number) => {
      const mark = drawn.marks[number];
      if (mark.from !== undefined) {
        const isOwn = mark.from !== mark.to && (mark.from === selected || mark.to === selected);
        element.classList.toggle("lit", selected >= 0 && isOwn);
      }
      const of = mark.item ?? mark.of;
      app.trail.mark(element, mark);
      app.diff.mark(element, mark);
      app.overlays.mark(element, mark);
      if (of !== undefined) element.classList.toggle("faint", !!found && !found.items.has(of));
      if (mark.item === undefined || !isBody(mark)) return;
      element.classList.toggle("selected", mark.item === selected);
      element.classList.toggle("near", app.near.has(mark.item));
    });
    rounds.replaceChildren(...app.roundButtons());
    root.setAttribute("aria-label", app.item ? `data flow, ${app.item.title || app.item.code} selected` : "data flow");
    if (isFollowed) show(selected);
  }

  /** Bring the selected box into sight, no further than it takes and at the same scale. */
  function show(/** @type {number} */ selected) {
    const box = places(drawn).get(selected);
    if (!box) return;
    const { w, h: height } = size();
    const x = (box.x + box.w / 2) * at.k + at.x;
    const y = (box.y + Math.min(box.h / 2, 60)) * at.k + at.y;
    if (x < 40 || x > w - 40) at.x = filled(at.x + w / 2 - x, w, drawn.w * at.k);
    if (y < 40 || y > height - 60) at.y = filled(at.y + height / 3 - y, height, drawn.h * at.k);
    move();
  }

  /** What leads to a box and from it, while the pointer is over it. */
  function hover(/** @type {number} */ item) {
    const found = item < 0 ? null : reach(app.model, drawn.marks, item);
    elements.forEach((element, number) => {
      const mark = drawn.marks[number];
      const key = mark.from === undefined ? mark.item : undefined;
      const isUp = !!found && (key === undefined ? found.upEdges.has(number) : found.up.has(key) && isBody(mark));
      const isDown = !!found && (key === undefined ? found.downEdges.has(number) : found.down.has(key) && isBody(mark));
      element.classList.toggle("upstream", isUp);
      element.classList.toggle("downstream", isDown && !isUp);
    });
  }

  // ---------------------------------------------------------------- the pointer

  moved(root, () => at, (x, y) => {
    at = { ...at, x, y };
    move();
  }, zoom);
  root.addEventListener("click", (click) => {
    const target = /** @type {Element} */ (click.target);
    const toggle = target.getAttribute("data-toggle");
    const item = target.getAttribute("data-item");
    const edge = target.getAttribute("data-edge");
    if (toggle !== null) app.toggle(app.model.items[Number(toggle)]);
    else if (item !== null) app.selectItem(app.model.items[Number(item)]);
    else if (edge !== null) app.selectEdge(drawn.marks[Number(edge)]);
  });
  root.addEventListener("dblclick", (click) => {
    const item = /** @type {Element} */ (click.target).getAttribute("data-item");
    if (item !== null) app.toggle(app.model.items[Number(item)]);
  });
  let over = -1;
  root.addEventListener("pointermove", (pointer) => {
    const item = pointer.buttons ? null : /** @type {Element} */ (pointer.target).getAttribute("data-item");
    const number = item === null ? -1 : Number(item);
    if (number === over) return;
    over = number;
    hover(over);
  });
  root.addEventListener("pointerleave", () => {
    over = -1;
    hover(-1);
  });
  new ResizeObserver(() => {
    if (!isPlaced && drawn.boxes && root.clientWidth) {
      begin();
      isPlaced = true;
    } else if (isPlaced) move();
  }).observe(root);

  return {
    zoom,
    fit,
    draw,
    light,
    drawn: () => drawn,
    /** Where the sheet is, and where to put it: for searches, which give the place back, and for links. */
    place: () => ({ ...at }),
    restore: (/** @type {{x: number, y: number, k: number}} */ place) => {
      at = { ...place };
      isPlaced = true;
      move();
    },
  };
}

/** @typedef {{x: number, y: number, w: number, h: number}} Box */

/**
 * Where a sheet begins in a pane if it is to leave no more of the pane empty than it has to.
 * @param {number} wanted
 * @param {number} room
 * @param {number} length
 */
function filled(wanted, room, length) {
  const last = room - TOP - length;
  return Math.max(Math.min(wanted, Math.max(TOP, last)), Math.min(TOP, last));
}

/** @param {import("./types").Mark} mark */
function isBody(mark) {
  return mark.item !== undefined && !mark.c.startsWith("head") && !mark.c.includes(" back");
}

/** @param {import("./types").Mark} mark @returns {Box} */
function sides(mark) {
  const { x = 0, y = 0, w = 0, h: high = 0, r = 0 } = mark;
  if (mark.t === "circle") return { x: x - r, y: y - r, w: 2 * r, h: 2 * r };
  return { x, y, w, h: high };
}

/**
 * Where each item's box is on the sheet.
 * @param {import("./types").Scene} drawn
 * @returns {Map<number, Box>}
 */
function places(drawn) {
  const found = new Map();
  for (const mark of drawn.marks) if (isBody(mark)) found.set(mark.item, sides(mark));
  return found;
}

/** @param {string} text @param {string} name @param {() => void} action */
function button(text, name, action) {
  return h("button", { title: name, "aria-label": name, onclick: action }, text);
}

function arrows() {
  const defs = document.createElementNS(SVG, "defs");
  const marker = document.createElementNS(SVG, "marker");
  const shape = document.createElementNS(SVG, "path");
  const all = { id: "arrow", viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "8", markerHeight: "8", markerUnits: "userSpaceOnUse", orient: "auto" };
  for (const [name, value] of Object.entries(all)) marker.setAttribute(name, value);
  shape.setAttribute("d", "M1,1L7,4L1,7");
  shape.setAttribute("class", "arrow");
  marker.append(shape);
  defs.append(marker);
  return defs;
}

/**
 * Wheel, drag, and two fingers.
 * @param {SVGSVGElement} root
 * @param {() => {x: number, y: number, k: number}} now
 * @param {(x: number, y: number) => void} moveTo
 * @param {(factor: number, x?: number, y?: number) => void} zoom
 */
function moved(root, now, moveTo, zoom) {
  /** @type {Map<number, {x: number, y: number}>} */
  const fingers = new Map();
  let isMoved = false;
  let start = { x: 0, y: 0 };
  root.addEventListener("wheel", (wheel) => {
    wheel.preventDefault();
    const box = root.getBoundingClientRect();
    if (wheel.ctrlKey || wheel.metaKey) zoom(Math.exp(-wheel.deltaY / 300), wheel.clientX - box.left, wheel.clientY - box.top);
    else moveTo(now().x - wheel.deltaX, now().y - wheel.deltaY);
  }, { passive: false });
  root.addEventListener("pointerdown", (down) => {
    if (down.button !== 0) return;
    fingers.set(down.pointerId, { x: down.clientX, y: down.clientY });
    start = { x: down.clientX, y: down.clientY };
    isMoved = false;
  });
  root.addEventListener("pointermove", (move) => {
    const before = fingers.get(move.pointerId);
    if (!before) return;
    if (!isMoved && Math.hypot(move.clientX - start.x, move.clientY - start.y) < 4) return;
    if (!isMoved) root.setPointerCapture(move.pointerId);
    isMoved = true;
    const here = { x: move.clientX, y: move.clientY };
    const other = [...fingers].find(([id]) => id !== move.pointerId);
    fingers.set(move.pointerId, here);
    if (!other) {
      moveTo(now().x + here.x - before.x, now().y + here.y - before.y);
      return;
    }
    const [, still] = other;
    const box = root.getBoundingClientRect();
    const factor = Math.hypot(here.x - still.x, here.y - still.y) / Math.max(1, Math.hypot(before.x - still.x, before.y - still.y));
    zoom(factor, still.x - box.left, still.y - box.top);
  });
  const end = (/** @type {PointerEvent} */ up) => fingers.delete(up.pointerId);
  root.addEventListener("pointerup", end);
  root.addEventListener("pointercancel", end);
  // A drag that ends over a box does not select it.
  root.addEventListener("click", (click) => {
    if (!isMoved) return;
    isMoved = false;
    click.stopImmediatePropagation();
  }, true);
}
