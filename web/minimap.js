// @ts-check
// A small map of a sheet that is larger than its pane: where one is, and a way to go elsewhere.
import { h } from "./dom.js";

const WIDEST = 150;
const HIGHEST = 190;
/** Of a small pane it covers no more than this part of a side. */
const LARGEST_PART = 0.4;
const MUCH_LARGER = 1.4;
const MOST_BOXES = 3000;

/** @param {(x: number, y: number) => void} go to a point of the sheet */
export function makeMinimap(go) {
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "minimap", "aria-hidden": true }));
  let k = 1;
  canvas.hidden = true;

  function follow(/** @type {PointerEvent} */ pointer) {
    const box = canvas.getBoundingClientRect();
    go((pointer.clientX - box.left) / k, (pointer.clientY - box.top) / k);
  }
  canvas.addEventListener("pointerdown", (down) => {
    canvas.setPointerCapture(down.pointerId);
    follow(down);
  });
  canvas.addEventListener("pointermove", (move) => {
    if (move.buttons) follow(move);
  });

  /**
   * @param {import("./types").Scene} drawn
   * @param {{x: number, y: number, k: number}} at
   * @param {{w: number, h: number}} size
   */
  function show(drawn, at, size) {
    const isLarge = drawn.w * at.k > size.w * MUCH_LARGER || drawn.h * at.k > size.h * MUCH_LARGER;
    canvas.hidden = !isLarge;
    if (!isLarge) return;
    const widest = Math.min(WIDEST, size.w * LARGEST_PART);
    const highest = Math.min(HIGHEST, size.h * LARGEST_PART);
    k = Math.min(widest / drawn.w, highest / drawn.h);
    const wide = Math.max(8, drawn.w * k);
    const high = Math.max(8, drawn.h * k);
    const ratio = window.devicePixelRatio || 1;
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const style = getComputedStyle(document.documentElement);
    pen.scale(ratio, ratio);
    pen.strokeStyle = style.getPropertyValue("--edge");
    pen.lineWidth = 0.5;
    let boxes = 0;
    for (const mark of drawn.marks) {
      const isBox = mark.item !== undefined && mark.t === "rect" && !mark.c.startsWith("head");
      if (!isBox || boxes++ > MOST_BOXES) continue;
      const { x = 0, y = 0, w = 0, h: tall = 0 } = mark;
      pen.fillStyle = style.getPropertyValue(mark.c.startsWith("group") ? "--soft" : mark.c.includes("failed") ? "--red" : "--stroke");
      pen.fillRect(x * k, y * k, Math.max(1, w * k), Math.max(1, tall * k));
      if (mark.c.startsWith("group")) pen.strokeRect(x * k, y * k, w * k, tall * k);
    }
    pen.strokeStyle = style.getPropertyValue("--accent");
    pen.lineWidth = 1.5;
    // All four sides are to be seen, also where the pane shows more than the sheet.
    const within = (/** @type {number} */ place, /** @type {number} */ end) => Math.max(1, Math.min(end - 1, place * k));
    const left = within(-at.x / at.k, wide);
    const top = within(-at.y / at.k, high);
    const right = within((size.w - at.x) / at.k, wide);
    const bottom = within((size.h - at.y) / at.k, high);
    pen.strokeRect(left, top, right - left, bottom - top);
  }
  return { element: canvas, show };
}
