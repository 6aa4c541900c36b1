// What is shown, in the address: the selection, what is open, the search, the place of the sheet. So a link opens the
// same picture, and the browser's Back leads to what was selected before.
import { itemWith } from "./data.js";

const SETTLED = 250;
const TOGETHER = 400;

/**
 * @param {any} app
 */
export function makeState(app) {
  const isFramed = window.parent !== window;
  // Open boxes are told only where the reader has opened or closed some: else they follow from the selection.
  let isOpenTold = false;
  let search = "";
  let isRestoring = false;
  let isStarted = false;
  let pushed = 0;
  let waiting = 0;

  /** All of it as the part of an address behind #. */
  function written() {
    const parts = [];
    if (app.selected >= 0) parts.push("event=" + app.selected);
    if (app.selected >= 0 && app.isHome) parts.push("card");
    if (app.item && app.selected >= 0 && app.item !== itemWith(app.model, app.selected)) parts.push("item=" + app.item.number);
    if (isOpenTold) parts.push("open=" + [...app.open].sort((a, b) => a - b).join("."));
    if (search) parts.push("search=" + encodeURIComponent(search));
    if (app.overlays.chosen()) parts.push("colour=" + app.overlays.chosen());
    const at = app.panes.flow && app.panes.flow.place();
    if (at && isMoved) parts.push(`at=${Math.round(at.x)},${Math.round(at.y)},${at.k.toFixed(3)}`);
    return "#" + parts.join("&");
  }
  let isMoved = false;

  function write(how) {
    if (isRestoring || isFramed) return;
    const text = written();
    if (text === location.hash || (text === "#" && !location.hash)) return;
    try {
      history[how](null, "", text);
    } catch {
      // a frame without an address
    }
  }

  /** A step was selected: Back leads to the one before. Steps that are run through are one. */
  function visited() {
    const now = performance.now();
    const isNew = isStarted && now - pushed > TOGETHER;
    pushed = now;
    write(isNew ? "pushState" : "replaceState");
  }

  function changed() {
    clearTimeout(waiting);
    waiting = setTimeout(() => write("replaceState"), SETTLED);
  }

  /**
   * Show what an address says; whether it said anything.
   * @param {string} hash
   */
  function restore(hash) {
    const said = new URLSearchParams(hash.replace(/^#/, ""));
    const event = Number(said.get("event") ?? -1);
    const isEvent = Number.isInteger(event) && event >= 0 && event < app.model.events.size;
    isRestoring = true;
    try {
      restoreOpen(said.get("open"));
      restoreSearch(said.get("search") || "");
      const item = said.has("item") ? app.model.items[Number(said.get("item"))] : null;
      if (isEvent) app.select(event, true, item || null);
      else if (said.has("open")) app.drawAll();
      if (said.has("card") || (!isEvent && isStarted)) app.goHome();
      if ((said.get("colour") || "") !== app.overlays.chosen()) app.overlays.choose(said.get("colour") || "");
      restorePlace(said.get("at"));
    } finally {
      isRestoring = false;
    }
    return isEvent;
  }

  function restoreOpen(text) {
    isOpenTold = text !== null;
    if (text === null) return;
    const known = text.split(".").map(Number).filter((number) => app.model.items[number] && app.model.items[number].children.length);
    app.open = new Set(known);
    if (app.panes.flow) app.drawAll();
  }

  function restoreSearch(text) {
    if (text === search) return;
    if (state.box) state.box.value = text;
    app.searchFor(text);
  }

  function restorePlace(text) {
    const numbers = (text || "").split(",").map(Number);
    isMoved = numbers.length === 3 && numbers.every(Number.isFinite) && numbers[2] > 0;
    if (isMoved) app.panes.flow.restore({ x: numbers[0], y: numbers[1], k: Math.min(8, numbers[2]) });
  }

  const state = {
    /** The field of the search. @type {HTMLInputElement | null} */
    box: null,
    visited,
    restore,
    opened() {
      isOpenTold = true;
      changed();
    },
    searched(query) {
      search = query.trim();
      changed();
    },
    coloured: changed,
    moved() {
      isMoved = true;
      changed();
    },
    link: () => location.href.split("#")[0] + written(),
    listen() {
      isStarted = true;
      const follow = () => {
        if (location.hash !== written()) restore(location.hash);
      };
      window.addEventListener("popstate", follow);
      const sheet = document.querySelector(".pane.flow");
      if (sheet) for (const name of ["wheel", "pointerup"]) sheet.addEventListener(name, () => app.selected >= 0 && state.moved(), { passive: true });
    },
  };
  return state;
}
