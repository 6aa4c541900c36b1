// The buttons and fields that cannot be pressed: outside their pane, squeezed, or with something over them.
() => {
  const found = [];
  const all = document.querySelectorAll('.bar button, .bar select, .pane header button, .pane header select');
  for (const element of all) {
    if (!element.offsetParent || !element.getClientRects().length) continue;
    const box = element.getBoundingClientRect();
    const pane = (element.closest('.pane') || document.body).getBoundingClientRect();
    const isIn = box.width > 8 && box.left >= pane.left - 1 && box.right <= pane.right + 1;
    const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    if (!isIn || !(top === element || element.contains(top))) found.push(element.outerHTML);
  }
  return found;
}
