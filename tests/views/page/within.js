// Opens everything, and says which titles reach over the right side of their boxes, or into what stands behind them.
() => {
  const app = torchglass;
  for (const item of app.model.items) if (item.children.length) app.open.add(item.number);
  app.drawAll();
  const texts = [...document.querySelectorAll('.sheet text')].map((text) => ({ text, side: text.getBBox() }));
  const boxes = [...document.querySelectorAll('.sheet rect')].map((box) => box.getBBox());
  const wrong = [];
  for (const { text, side } of texts.filter((each) => each.text.classList.contains('title'))) {
    const middle = side.y + side.height / 2;
    const around = boxes.filter((box) => box.x <= side.x && side.x <= box.x + box.width && box.y <= middle && middle <= box.y + box.height);
    if (!around.some((box) => side.x + side.width <= box.x + box.width)) wrong.push(text.textContent);
    for (const other of texts) if (other.text !== text && other.text.getAttribute('y') === text.getAttribute('y') && other.side.x > side.x && other.side.x < side.x + side.width) wrong.push(text.textContent + ' | ' + other.text.textContent);
  }
  return { wrong: wrong.slice(0, 5), titles: texts.filter((each) => each.text.classList.contains('title')).length };
}
