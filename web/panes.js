// @ts-check
// Panes are as wide as their reader wants them: the lines between them can be dragged, and stay where they were put.
import { h } from "./dom.js";

const KEPT = "torchglass-panes";
const STEP = 24;

/** Each line between panes: where it stands, which size it sets, and in which direction that grows. */
const LINES = [
  { name: "steps", before: ".pane.flow", size: "--steps", axis: "x", sign: 1, least: 150, of: ".pane.steps", label: "width of the steps" },
  { name: "side", before: ".side", size: "--side", axis: "x", sign: -1, least: 220, of: ".side", label: "width of code and details" },
  { name: "details", before: ".pane.details", size: "--details", axis: "y", sign: -1, least: 80, of: ".pane.details", label: "height of the details" },
  { name: "timeline", before: ".pane.timeline", size: "--timeline", axis: "y", sign: -1, least: 80, of: ".pane.timeline", label: "height of the timeline" },
];

/**
 * Put lines between the panes.
 * @param {HTMLElement} body
 * @param {() => void} changed
 */
export function adjustable(body, changed) {
  const sizes = kept();
  for (const [size, value] of Object.entries(sizes)) body.style.setProperty(size, `${value}px`);
  for (const line of LINES) {
    const pane = /** @type {HTMLElement} */ (body.querySelector(line.before));
    if (pane) pane.append(separator(body, line, sizes, changed));
  }
}

/**
 * @param {HTMLElement} body
 * @param {typeof LINES[0]} line
 * @param {Record<string, number>} sizes
 * @param {() => void} changed
 */
function separator(body, line, sizes, changed) {
  const orientation = line.axis === "x" ? "vertical" : "horizontal";
  const element = h("div", { class: `separator ${orientation}`, role: "separator", tabindex: 0, "aria-orientation": orientation, "aria-label": line.label, "aria-valuenow": 50 });
  const isWide = line.axis === "x";
  const measured = () => {
    const box = /** @type {HTMLElement} */ (body.querySelector(line.of)).getBoundingClientRect();
    return isWide ? box.width : box.height;
  };
  const most = () => (isWide ? body.clientWidth : body.clientHeight) * 0.6;
  const set = (/** @type {number} */ size) => {
    sizes[line.size] = Math.round(Math.max(line.least, Math.min(most(), size)));
    body.style.setProperty(line.size, `${sizes[line.size]}px`);
    element.setAttribute("aria-valuenow", String(Math.round((100 * sizes[line.size]) / most())));
    changed();
  };
  let from = { at: 0, size: 0 };
  element.addEventListener("pointerdown", (down) => {
    element.setPointerCapture(down.pointerId);
    from = { at: isWide ? down.clientX : down.clientY, size: measured() };
    down.preventDefault();
  });
  element.addEventListener("pointermove", (move) => {
    if (!element.hasPointerCapture(move.pointerId)) return;
    set(from.size + line.sign * ((isWide ? move.clientX : move.clientY) - from.at));
  });
  element.addEventListener("pointerup", () => keep(sizes));
  element.addEventListener("dblclick", () => {
    delete sizes[line.size];
    body.style.removeProperty(line.size);
    keep(sizes);
    changed();
  });
  element.addEventListener("keydown", (key) => {
    const [less, more] = isWide ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
    if (key.key !== less && key.key !== more) return;
    key.preventDefault();
    key.stopPropagation();
    set(measured() + line.sign * (key.key === more ? STEP : -STEP));
    keep(sizes);
  });
  return element;
}

/** @returns {Record<string, number>} */
function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT) || "{}");
  } catch {
    // A sandboxed frame keeps nothing.
    return {};
  }
}

/** @param {Record<string, number>} sizes */
function keep(sizes) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(sizes));
  } catch {
    // the same
  }
}
