// Opens everything, and says which boxes lie over each other.
() => {
  const app = torchglass;
  for (const item of app.model.items) if (item.children.length) app.open.add(item.number);
  app.drawAll();
  const marks = app.panes.flow.drawn().marks.filter((mark) => mark.item !== undefined && !mark.c.startsWith('head'));
  const sides = marks.map((mark) => mark.t === 'circle' ? {...mark, left: mark.x - mark.r, top: mark.y - mark.r, right: mark.x + mark.r, bottom: mark.y + mark.r}
    : {...mark, left: mark.x, top: mark.y, right: mark.x + mark.w, bottom: mark.y + mark.h});
  const holds = (a, b) => { for (let item = app.model.items[b.item]; item; item = app.model.items[item.parent]) if (item.number === a.item) return true; return false; };
  const wrong = [];
  for (const a of sides) for (const b of sides) {
    if (a.item >= b.item) continue;
    const apart = a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
    const within = b.left >= a.left && b.right <= a.right && b.top >= a.top && b.bottom <= a.bottom;
    if (holds(a, b) ? !within : !apart) wrong.push([app.model.items[a.item].title, app.model.items[b.item].title]);
  }
  return {wrong: wrong.slice(0, 5), boxes: sides.length};
}
